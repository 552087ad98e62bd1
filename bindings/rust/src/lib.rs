//! raygo for Rust: values, Python functions by name, and Rust functions that Python calls.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # fn main() -> raygo::Result<()> {
//! let rt = raygo::Runtime::connect("")?; // this user's running engine; Runtime::start makes one
//! let median: f64 = rt.call("statistics:median", (vec![1.0, 4.0, 9.0],), Some(Duration::from_secs(10)))?;
//! let object = rt.put_bytes(b"some bytes")?;
//! let doubled: serde_bytes::ByteBuf = rt.call("operator:mul", (&object, 2), None)?;
//! # Ok(())
//! # }
//! ```
//!
//! Arguments are tuples of whatever serde can serialise; an [`Object`] among them stands for its value. Structs travel as maps, `Vec<u8>` as a list of
//! numbers (use `serde_bytes` for bytes).
//!
//! With the feature `arrow`, `Runtime::put_batches`, `Object::batches` and `Buf::batches` exchange record batches of the `arrow-array` crate, without copies.
//!
//! The crate is a thin, safe layer on raygo.h: handles are released when dropped, errors are [`Error`], nothing is global.
//! Everything is `Send` and `Sync`.

#[cfg(feature = "arrow")]
mod arrow;
mod error;
mod ffi;
mod runtime;
mod serve;
mod value;

pub use error::{Code, Error, Result};
pub use runtime::{Actor, Function, Object, Options, Runtime, Token};
pub use serve::{Server, Task};
pub use value::{Buf, Format};

/// The library's version, as in "0.1.0".
pub fn version() -> &'static str {
    // SAFETY: static text.
    unsafe { std::ffi::CStr::from_ptr(ffi::raygo_version()) }.to_str().unwrap_or("")
}
