//! A session on an engine, and what is made in it.

use std::{sync::Arc, time::Duration};

use serde::{de::DeserializeOwned, Serialize};

use crate::{
    error::check,
    ffi::{self, View},
    value::{pack, Packed},
    Buf, Error, Format, Result,
};

const ABI_VERSION: u32 = 1;

/// `None`: for ever.
pub(crate) fn nanoseconds(timeout: Option<Duration>) -> i64 {
    timeout.map_or(-1, |t| i64::try_from(t.as_nanos()).unwrap_or(i64::MAX))
}

/// How a runtime begins; `Options::default()` is right for most.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// CPUs of a started engine; `None`: those of the machine.
    pub num_cpus: Option<f64>,
    /// Bytes of a started engine's object store; `None`: 30 % of the memory.
    pub object_store_memory: Option<u64>,
    /// Where actor names are looked up; empty: a name space of this session's own.
    pub namespace: String,
    /// The interpreter for workers; empty: `$RAYGO_PYTHON`, else `python3` on the path.
    pub python: String,
    /// Folders that workers import from.
    pub sys_path: Vec<String>,
}

struct Inner(ffi::Runtime);

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: our handle; releasing shuts down first.
        unsafe { ffi::raygo_runtime_release(self.0, std::ptr::null_mut()) };
    }
}

/// A session on an engine. Clones are the same session; it ends with the last of them and of what was made in it.
#[derive(Clone)]
pub struct Runtime(Arc<Inner>);

impl Runtime {
    /// Starts an engine in this process.
    pub fn start(options: &Options) -> Result<Runtime> {
        Runtime::begin(options, |o, out, err| unsafe { ffi::raygo_start(o, out, err) })
    }

    /// Joins the engine of a running program: the path of its socket or session folder; empty: this user's newest.
    pub fn connect(address: &str) -> Result<Runtime> {
        Runtime::connect_with(address, &Options::default())
    }

    /// As [`Runtime::connect`], with options.
    pub fn connect_with(address: &str, options: &Options) -> Result<Runtime> {
        Runtime::begin(options, |o, out, err| unsafe { ffi::raygo_connect(View::of(address.as_bytes()), o, out, err) })
    }

    fn begin(options: &Options, call: impl FnOnce(*const ffi::Options, *mut ffi::Runtime, *mut ffi::Error) -> ffi::Status) -> Result<Runtime> {
        // SAFETY: no state.
        let found = unsafe { ffi::raygo_abi_version() };
        if found != ABI_VERSION {
            return Err(Error::invalid(format!("libraygo.so has version {found} of the C interface, this crate needs {ABI_VERSION}: build both from one tree")));
        }
        let sys_path = pack(&options.sys_path)?;
        let o = ffi::Options {
            struct_size: std::mem::size_of::<ffi::Options>(),
            name_space: View::of(options.namespace.as_bytes()),
            job_name: View::EMPTY,
            python: View::of(options.python.as_bytes()),
            sys_path: View::of(&sys_path),
            working_dir: View::EMPTY,
            env: View::EMPTY,
            runtime_env: View::EMPTY,
            log_to_driver: 0,
            reserved: 0,
            timeout_ns: 0,
            num_cpus: options.num_cpus.map_or(0.0, |n| if n == 0.0 { -1.0 } else { n }),
            num_gpus: 0.0,
            resources: View::EMPTY,
            object_store_memory: options.object_store_memory.unwrap_or(0),
            engine_options: View::EMPTY,
        };
        let mut out = ffi::Runtime::default();
        check(|err| call(&o, &mut out, err))?;
        Ok(Runtime(Arc::new(Inner(out))))
    }

    pub(crate) fn handle(&self) -> ffi::Runtime {
        self.0 .0
    }

    /// Ends the session now; later calls fail with `Code::Shutdown`.
    pub fn shutdown(&self) -> Result<()> {
        check(|err| unsafe { ffi::raygo_shutdown(self.handle(), 10_000_000_000, err) })
    }

    fn put_as(&self, format: Format, body: &[u8]) -> Result<Object> {
        let mut out = ffi::Object::default();
        check(|err| unsafe { ffi::raygo_put(self.handle(), format as u32, View::of(body), -1, ffi::Token::default(), &mut out, err) })?;
        Ok(Object { rt: self.clone(), h: out })
    }

    /// Stores bytes.
    pub fn put_bytes(&self, bytes: &[u8]) -> Result<Object> {
        self.put_as(Format::Bytes, bytes)
    }

    /// Stores a plain value.
    pub fn put<T: Serialize + ?Sized>(&self, value: &T) -> Result<Object> {
        self.put_as(Format::Msgpack, &pack(value)?)
    }

    /// Waits until `need` of the objects have a value or an error; tells which.
    pub fn wait(&self, objects: &[&Object], need: usize, timeout: Option<Duration>) -> Result<Vec<bool>> {
        let handles: Vec<_> = objects.iter().map(|o| o.h).collect();
        let mut ready = vec![0u8; handles.len()];
        let done = check(|err| unsafe {
            ffi::raygo_wait(self.handle(), handles.as_ptr(), handles.len(), need, nanoseconds(timeout), ffi::Token::default(), ready.as_mut_ptr(), std::ptr::null_mut(), err)
        });
        match done {
            Err(e) if e.code() != crate::Code::TimedOut => Err(e),
            _ => Ok(ready.into_iter().map(|r| r != 0).collect()),
        }
    }

    /// Calls a function and waits for its value: "module:qualname" of a Python function, or the name of a served one.
    pub fn call<A: Serialize, T: DeserializeOwned>(&self, name: &str, args: A, timeout: Option<Duration>) -> Result<T> {
        let packed = Packed::new(&args)?;
        let mut out = Buf::empty();
        check(|err| unsafe { ffi::raygo_call(self.handle(), View::of(name.as_bytes()), &packed.ffi(), nanoseconds(timeout), ffi::Token::default(), out.raw(), err) })?;
        out.decode()
    }

    fn template(&self, kind: u32, name: &str, actor_name: &str) -> Result<Function> {
        let o = ffi::TemplateOptions {
            struct_size: std::mem::size_of::<ffi::TemplateOptions>(),
            name: View::EMPTY,
            num_returns: 1,
            max_retries: 0,
            retry_exceptions: 0,
            max_calls: 0,
            num_cpus: 0.0,
            num_gpus: 0.0,
            memory: 0,
            resources: View::EMPTY,
            runtime_env: View::EMPTY,
            actor_name: View::of(actor_name.as_bytes()),
            name_space: View::EMPTY,
            detached: 0,
            get_if_exists: 0,
            max_restarts: 0,
            max_task_retries: 0,
            max_concurrency: 0,
            reserved: 0,
            extra: View::EMPTY,
        };
        let mut h = ffi::Template::default();
        check(|err| unsafe { ffi::raygo_template_new(self.handle(), kind, View::of(name.as_bytes()), &o, &mut h, err) })?;
        Ok(Function { rt: self.clone(), h })
    }

    /// Prepares a function for many calls; names as in [`Runtime::call`].
    pub fn function(&self, name: &str) -> Result<Function> {
        self.template(if name.contains(':') { ffi::FUNCTION } else { ffi::NAMED }, name, "")
    }

    /// Makes an actor of a Python class "module:qualname"; `name` may be empty.
    pub fn actor<A: Serialize>(&self, class: &str, name: &str, args: A) -> Result<Actor> {
        let class = self.template(ffi::ACTOR, class, name)?;
        let packed = Packed::new(&args)?;
        let mut h = ffi::Actor::default();
        check(|err| unsafe { ffi::raygo_actor_new(self.handle(), class.h, &packed.ffi(), -1, ffi::Token::default(), &mut h, err) })?;
        Ok(Actor { rt: self.clone(), h })
    }
}

/// A reference to a value, there or to come. It keeps the value alive.
pub struct Object {
    rt: Runtime,
    h: ffi::Object,
}

impl Object {
    #[cfg(feature = "arrow")]
    pub(crate) fn of(rt: &Runtime, h: ffi::Object) -> Object {
        Object { rt: rt.clone(), h }
    }

    pub(crate) fn handle(&self) -> ffi::Object {
        self.h
    }

    /// Waits for the value's bytes.
    pub fn buf(&self, timeout: Option<Duration>) -> Result<Buf> {
        self.buf_until(timeout, None)
    }

    /// As [`Object::buf`]; the token ends the wait with `Code::Interrupted`.
    pub fn buf_until(&self, timeout: Option<Duration>, token: Option<&Token>) -> Result<Buf> {
        let mut out = Buf::empty();
        let token = token.map_or(ffi::Token::default(), |t| t.0);
        check(|err| unsafe { ffi::raygo_get(self.rt.handle(), &self.h, 1, nanoseconds(timeout), token, out.raw(), err) })?;
        Ok(out)
    }

    /// Waits for a plain value.
    pub fn get<T: DeserializeOwned>(&self, timeout: Option<Duration>) -> Result<T> {
        self.buf(timeout)?.decode()
    }

    /// Cancels the task that makes it.
    pub fn cancel(&self, force: bool) -> Result<()> {
        check(|err| unsafe { ffi::raygo_cancel(self.rt.handle(), self.h, u32::from(force) | 2, err) })
    }
}

impl Clone for Object {
    fn clone(&self) -> Object {
        // SAFETY: our handle.
        unsafe { ffi::raygo_retain(&self.h, 1, std::ptr::null_mut()) };
        Object { rt: self.rt.clone(), h: self.h }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: our reference.
        unsafe { ffi::raygo_release(&self.h, 1, std::ptr::null_mut()) };
    }
}

/// A function that was prepared once.
pub struct Function {
    rt: Runtime,
    h: ffi::Template,
}

impl Function {
    /// Hands a task to the engine and returns at once.
    pub fn submit<A: Serialize>(&self, args: A) -> Result<Object> {
        let packed = Packed::new(&args)?;
        let mut out = ffi::Object::default();
        check(|err| unsafe { ffi::raygo_submit(self.rt.handle(), self.h, &packed.ffi(), &mut out, err) })?;
        Ok(Object { rt: self.rt.clone(), h: out })
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        // SAFETY: our handle.
        unsafe { ffi::raygo_template_release(self.h, std::ptr::null_mut()) };
    }
}

/// An actor in a Python process. It ends when this is dropped and its calls are done.
pub struct Actor {
    rt: Runtime,
    h: ffi::Actor,
}

impl Actor {
    /// Calls a method; calls of one runtime run in order.
    pub fn call<A: Serialize>(&self, method: &str, args: A) -> Result<Object> {
        let method = self.rt.template(ffi::METHOD, method, "")?;
        let packed = Packed::new(&args)?;
        let mut out = ffi::Object::default();
        check(|err| unsafe { ffi::raygo_actor_call(self.rt.handle(), self.h, method.h, &packed.ffi(), &mut out, err) })?;
        Ok(Object { rt: self.rt.clone(), h: out })
    }

    /// Ends its process.
    pub fn kill(&self) -> Result<()> {
        check(|err| unsafe { ffi::raygo_actor_kill(self.rt.handle(), self.h, 1, err) })
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        // SAFETY: our handle.
        unsafe { ffi::raygo_actor_release(self.h, std::ptr::null_mut()) };
    }
}

/// Ends waits early, from any thread.
pub struct Token(pub(crate) ffi::Token);

impl Token {
    /// A token that was not fired.
    pub fn new() -> Result<Token> {
        let mut h = ffi::Token::default();
        check(|err| unsafe { ffi::raygo_token_new(&mut h, err) })?;
        Ok(Token(h))
    }

    /// Ends the waits that have it, and every later one at once.
    pub fn fire(&self) {
        // SAFETY: our handle.
        unsafe { ffi::raygo_token_fire(self.0, std::ptr::null_mut()) };
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        // SAFETY: our handle.
        unsafe { ffi::raygo_token_release(self.0, std::ptr::null_mut()) };
    }
}
