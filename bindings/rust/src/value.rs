//! Values: bytes, and what serde makes of msgpack.

use std::{cell::RefCell, ops::Deref, slice};

use serde::{de::DeserializeOwned, ser, Serialize, Serializer};

use crate::{ffi, Error, Object, Result};

/// How a value is encoded: `enum raygo_format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Python's None; no bytes.
    None = 0,
    /// Python's own, opaque here.
    Pickle = 1,
    /// The bytes as they are.
    Bytes = 2,
    /// One plain value.
    Msgpack = 3,
    /// An Arrow IPC stream.
    Arrow = 4,
}

/// A value's bytes, read-only. Large ones are shared memory, which stays in place while this lives.
pub struct Buf(ffi::Buf);

// SAFETY: the memory does not change while the owner holds it, and releasing is allowed from any thread.
unsafe impl Send for Buf {}
unsafe impl Sync for Buf {}

impl Buf {
    pub(crate) fn empty() -> Buf {
        Buf(ffi::Buf::EMPTY)
    }

    pub(crate) fn raw(&mut self) -> *mut ffi::Buf {
        &mut self.0
    }

    /// How the bytes are encoded; `None` for a format that this version does not know.
    pub fn format(&self) -> Option<Format> {
        Some(match self.0.format {
            0 => Format::None,
            1 => Format::Pickle,
            2 => Format::Bytes,
            3 => Format::Msgpack,
            4 => Format::Arrow,
            _ => return None,
        })
    }

    /// Decodes a plain value. Python's None is `()` or `Option::None`; bytes become `serde_bytes::ByteBuf` or `Vec<u8>` of any format that holds them.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T> {
        match self.format() {
            Some(Format::Msgpack) => unpack(self),
            Some(Format::None) => unpack(&[0xc0]),
            Some(Format::Bytes) => unpack(&pack(serde_bytes::Bytes::new(self))?),
            other => Err(Error::invalid(format!("a value of format {other:?} cannot be read by Rust: it was not stored as a plain value"))),
        }
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.0.data.is_null() {
            return &[];
        }
        // SAFETY: data and len are the library's, valid until the release in drop.
        unsafe { slice::from_raw_parts(self.0.data, self.0.len) }
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        // SAFETY: filled in by the library, or empty.
        unsafe { ffi::raygo_buf_release(&mut self.0) }
    }
}

pub(crate) fn pack<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>> {
    // Structs become maps, which is what other languages expect of them.
    let mut out = Vec::new();
    value.serialize(&mut rmp_serde::Serializer::new(&mut out).with_struct_map()).map_err(|e| Error::invalid(format!("a value cannot be packed: {e}")))?;
    Ok(out)
}

pub(crate) fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    rmp_serde::from_slice(bytes).map_err(|e| Error::invalid(format!("a value is not what was asked for: {e}")))
}

thread_local! {
    /// The references met while arguments are packed on this thread; `None` elsewhere.
    static REFS: RefCell<Option<Vec<ffi::Object>>> = const { RefCell::new(None) };
}

/// In arguments, an object stands for its value.
impl Serialize for Object {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        let i = REFS.with_borrow_mut(|refs| {
            let refs = refs.as_mut()?;
            refs.push(self.handle());
            Some(refs.len() as u32 - 1)
        });
        let Some(i) = i else { return Err(ser::Error::custom("an Object can stand among the arguments of a call only")) };
        s.serialize_newtype_struct("_ExtStruct", &(1i8, serde_bytes::Bytes::new(&i.to_le_bytes())))
    }
}

/// Packed arguments. `args` is a tuple, a list or `()`.
pub(crate) struct Packed {
    bytes: Vec<u8>,
    refs: Vec<ffi::Object>,
}

impl Packed {
    pub fn new<A: Serialize>(args: &A) -> Result<Packed> {
        let before = REFS.replace(Some(Vec::new()));
        let bytes = pack(args);
        let refs = REFS.replace(before).unwrap_or_default();
        let mut bytes = bytes?;
        if bytes == [0xc0] {
            bytes = vec![0x90];
        }
        Ok(Packed { bytes, refs })
    }

    /// Borrows from self.
    pub fn ffi(&self) -> ffi::Args {
        ffi::Args { packed: ffi::View::of(&self.bytes), refs: self.refs.as_ptr(), nrefs: self.refs.len() }
    }
}
