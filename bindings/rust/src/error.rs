//! What can go wrong.

use std::{ffi::CStr, fmt};

use crate::ffi;

/// The causes of failure that programs tell apart; numbers are those of `capi/errors.tsv`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Code {
    /// An argument is not acceptable, or a value cannot be encoded or decoded.
    Invalid,
    /// The deadline passed first.
    TimedOut,
    /// The task was cancelled.
    Cancelled,
    /// No such actor, function, key, or engine.
    NotFound,
    /// The name is already taken.
    Exists,
    /// The process is a forked child.
    Forked,
    /// The connection to the engine is gone.
    Connection,
    /// The task's own code raised.
    Task,
    /// The worker process died.
    WorkerDied,
    /// The actor is dead.
    ActorDied,
    /// The runtime was shut down.
    Shutdown,
    /// A token ended the wait.
    Interrupted,
    /// Any other status of raygo.h.
    Other(i32),
}

impl From<i32> for Code {
    fn from(status: i32) -> Code {
        match status {
            1 => Code::Invalid,
            2 => Code::TimedOut,
            3 => Code::Cancelled,
            4 => Code::NotFound,
            5 => Code::Exists,
            7 => Code::Forked,
            10 => Code::Connection,
            11 => Code::Task,
            12 => Code::WorkerDied,
            13 => Code::ActorDied,
            25 => Code::Shutdown,
            28 => Code::Interrupted,
            other => Code::Other(other),
        }
    }
}

/// A failure: what happened, to what, and what to do.
#[derive(Clone, Debug)]
pub struct Error {
    code: Code,
    message: String,
    retryable: bool,
    detail: Vec<u8>,
}

impl Error {
    pub(crate) fn invalid(message: impl fmt::Display) -> Error {
        Error { code: Code::Invalid, message: message.to_string(), retryable: false, detail: Vec::new() }
    }

    /// The cause.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Whether the same call may go well later.
    pub fn retryable(&self) -> bool {
        self.retryable
    }

    /// What is known beyond the text: a msgpack map, or nothing.
    pub fn detail(&self) -> &[u8] {
        &self.detail
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Makes a call that fills in an error.
pub(crate) fn check(call: impl FnOnce(*mut ffi::Error) -> ffi::Status) -> Result<()> {
    let mut err = ffi::Error { struct_size: std::mem::size_of::<ffi::Error>(), code: 0, retryable: 0, message: std::ptr::null_mut(), detail: ffi::Buf::EMPTY };
    let status = call(&mut err);
    if status == ffi::OK {
        return Ok(());
    }
    // SAFETY: a message is zero-terminated text, a detail is len bytes; both are ours until raygo_error_clear.
    let error = unsafe {
        let message = if err.message.is_null() {
            CStr::from_ptr(ffi::raygo_status_name(status)).to_string_lossy().into_owned()
        } else {
            CStr::from_ptr(err.message).to_string_lossy().into_owned()
        };
        let detail = if err.detail.data.is_null() { Vec::new() } else { std::slice::from_raw_parts(err.detail.data, err.detail.len).to_vec() };
        Error { code: status.into(), message, retryable: err.retryable != 0, detail }
    };
    // SAFETY: err was filled in by the library.
    unsafe { ffi::raygo_error_clear(&mut err) };
    Err(error)
}
