//! Functions of this program that others call.

use std::{collections::HashMap, time::Duration};

use serde::{de::DeserializeOwned, Serialize};

use crate::{
    error::check,
    ffi::{self, View},
    runtime::nanoseconds,
    value::{pack, unpack},
    Buf, Error, Format, Result, Runtime, Token,
};

/// A task that this process was given to run. Dropped without an answer, it fails.
pub struct Task {
    h: ffi::Task,
    name: String,
    args: Vec<u8>,
    refs: u32,
}

impl Task {
    /// The next task of any function that the runtime serves. The token ends the wait with `Code::Interrupted`.
    pub fn next(rt: &Runtime, timeout: Option<Duration>, token: Option<&Token>) -> Result<Task> {
        let mut h = ffi::Task::default();
        let mut info = ffi::TaskInfo { struct_size: std::mem::size_of::<ffi::TaskInfo>(), number: 0, attempt: 0, num_returns: 0, nrefs: 0, reserved: 0, name: View::EMPTY, args: View::EMPTY };
        let token = token.map_or(ffi::Token::default(), |t| t.0);
        check(|err| unsafe { ffi::raygo_task_next(rt.handle(), nanoseconds(timeout), token, &mut h, &mut info, err) })?;
        // SAFETY: both views are valid until the task is answered.
        let (name, args) = unsafe { (bytes(&info.name), bytes(&info.args)) };
        Ok(Task { h, name: String::from_utf8_lossy(&name).into_owned(), args, refs: info.nrefs })
    }

    /// The name it was called by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The positional arguments: a tuple, or a list.
    pub fn args<T: DeserializeOwned>(&self) -> Result<T> {
        if self.refs > 0 {
            return Err(Error::invalid(format!("{} was called with references; take their values with Task::reference", self.name)));
        }
        unpack(&self.args)
    }

    /// The value of a referenced argument.
    pub fn reference(&self, i: u32) -> Result<Buf> {
        let mut out = Buf::empty();
        check(|err| unsafe { ffi::raygo_task_arg(self.h, i, out.raw(), err) })?;
        Ok(out)
    }

    /// Whether its caller no longer wants it.
    pub fn cancelled(&self) -> bool {
        let mut flag = 0;
        check(|err| unsafe { ffi::raygo_task_cancelled(self.h, &mut flag, err) }).is_err() || flag != 0
    }

    /// Answers with a plain value.
    pub fn reply<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        let body = match pack(value) {
            Ok(body) => body,
            Err(error) => return self.fail("TypeError", &error.to_string()),
        };
        self.reply_as(Format::Msgpack, &body)
    }

    /// Answers with bytes.
    pub fn reply_bytes(self, body: &[u8]) -> Result<()> {
        self.reply_as(Format::Bytes, body)
    }

    fn reply_as(self, format: Format, body: &[u8]) -> Result<()> {
        let value = ffi::ResultValue { body: View::of(body), format: format as u32, reserved: 0 };
        check(|err| unsafe { ffi::raygo_task_reply(self.h, &value, 1, -1, ffi::Token::default(), err) })
    }

    /// Answers with an error; Python raises a RayTaskError that says both.
    pub fn fail(self, kind: &str, message: &str) -> Result<()> {
        check(|err| unsafe { ffi::raygo_task_fail(self.h, View::of(kind.as_bytes()), View::of(message.as_bytes()), err) })
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // Refused as stale when it was answered, which is the usual case.
        // SAFETY: our handle.
        unsafe { ffi::raygo_task_fail(self.h, View::of(b"RuntimeError"), View::of(b"the program dropped the task without an answer"), std::ptr::null_mut()) };
    }
}

unsafe fn bytes(v: &View) -> Vec<u8> {
    if v.data.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(v.data.cast::<u8>(), v.len) }.to_vec()
}

type Answer = Box<dyn Fn(Task) -> Result<()> + Send + Sync>;

/// Functions by name, and the loop that runs them.
pub struct Server {
    rt: Runtime,
    functions: HashMap<String, Answer>,
}

impl Server {
    /// No functions yet.
    pub fn new(rt: &Runtime) -> Server {
        Server { rt: rt.clone(), functions: HashMap::new() }
    }

    /// Serves a function under a name without ':'. Its arguments are one tuple; what it returns as an error is raised at the caller's.
    pub fn function<A, T, E, F>(mut self, name: &str, f: F) -> Result<Server>
    where
        A: DeserializeOwned,
        T: Serialize,
        E: std::fmt::Display,
        F: Fn(A) -> std::result::Result<T, E> + Send + Sync + 'static,
    {
        check(|err| unsafe { ffi::raygo_serve(self.rt.handle(), View::of(name.as_bytes()), 1, -1, ffi::Token::default(), err) })?;
        let answer: Answer = Box::new(move |task| match task.args::<A>() {
            Err(error) => task.fail("TypeError", &format!("the arguments do not fit: {error}")),
            Ok(args) => match f(args) {
                Ok(value) => task.reply(&value),
                Err(error) => task.fail("RuntimeError", &error.to_string()),
            },
        });
        self.functions.insert(name.to_owned(), answer);
        Ok(self)
    }

    /// Runs tasks on this thread, `calls` of them, or until the token is fired or the engine ends.
    pub fn run(&self, calls: Option<u64>, token: Option<&Token>) -> Result<()> {
        let mut left = calls;
        while left != Some(0) {
            let task = Task::next(&self.rt, None, token)?;
            match self.functions.get(task.name()) {
                Some(answer) => answer(task)?,
                None => task.fail("LookupError", "this program does not serve the function any more")?,
            }
            left = left.map(|n| n - 1);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for name in self.functions.keys() {
            // SAFETY: our handle; it fails only when the engine is gone, and then nothing is served.
            unsafe { ffi::raygo_unserve(self.rt.handle(), View::of(name.as_bytes()), 5_000_000_000, ffi::Token::default(), std::ptr::null_mut()) };
        }
    }
}
