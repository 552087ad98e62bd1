//! Record batches, through the Arrow C stream interface: neither side copies them on the way out of the store.

use std::time::Duration;

use arrow_array::{
    ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader},
    RecordBatchReader,
};

use crate::{error::check, ffi, runtime::Object, runtime::Runtime, Buf, Error, Result};

impl Runtime {
    /// Stores what a reader gives, in one copy; Python gets a `pyarrow.Table`. `RecordBatchIterator` makes a reader of batches.
    pub fn put_batches(&self, batches: impl RecordBatchReader + Send + 'static) -> Result<Object> {
        let mut stream = FFI_ArrowArrayStream::new(Box::new(batches));
        let mut out = ffi::Object::default();
        // SAFETY: the stream is ours and whole; raygo releases it, which its drop then sees.
        check(|err| unsafe { ffi::raygo_put_arrow_stream(self.handle(), &mut stream, -1, ffi::Token::default(), &mut out, err) })?;
        Ok(Object::of(self, out))
    }
}

impl Object {
    /// Waits for Arrow data and gives its batches. They stand in shared memory, which each array keeps, until the last is dropped.
    pub fn batches(&self, timeout: Option<Duration>) -> Result<RecordBatchStreamReader> {
        self.buf(timeout)?.batches()
    }
}

impl Buf {
    /// The batches of a value of format [`crate::Format::Arrow`], in place.
    pub fn batches(mut self) -> Result<RecordBatchStreamReader> {
        let mut stream = FFI_ArrowArrayStream::empty();
        // SAFETY: the buffer is ours and is the stream's afterwards.
        check(|err| unsafe { ffi::raygo_arrow_stream(self.raw(), &mut stream, err) })?;
        RecordBatchStreamReader::try_new(stream).map_err(|e| Error::invalid(format!("the schema is not one that arrow-rs knows: {e}")))
    }
}
