//! raygo.h, as far as this crate uses it. What the functions promise is said there.

use std::ffi::{c_char, c_void};

pub type Status = i32;
pub const OK: Status = 0;

macro_rules! handles {
    ($($name:ident),*) => {$(
        #[repr(C)]
        #[derive(Clone, Copy, Default)]
        pub struct $name { pub h: u64 }
    )*};
}
handles!(Runtime, Template, Object, Actor, Task, Token);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct View {
    pub data: *const c_void,
    pub len: usize,
}

impl View {
    /// Borrowed for the call that it is given to.
    pub fn of(bytes: &[u8]) -> View {
        View { data: bytes.as_ptr().cast(), len: bytes.len() }
    }
    pub const EMPTY: View = View { data: std::ptr::null(), len: 0 };
}

#[repr(C)]
pub struct Buf {
    pub data: *const u8,
    pub len: usize,
    pub owner: *mut c_void,
    pub format: u32,
    pub reserved: u32,
}

impl Buf {
    pub const EMPTY: Buf = Buf { data: std::ptr::null(), len: 0, owner: std::ptr::null_mut(), format: 0, reserved: 0 };
}

#[repr(C)]
pub struct Error {
    pub struct_size: usize,
    pub code: i32,
    pub retryable: i32,
    pub message: *mut c_char,
    pub detail: Buf,
}

#[repr(C)]
pub struct Options {
    pub struct_size: usize,
    pub name_space: View,
    pub job_name: View,
    pub python: View,
    pub sys_path: View,
    pub working_dir: View,
    pub env: View,
    pub runtime_env: View,
    pub log_to_driver: u32,
    pub reserved: u32,
    pub timeout_ns: i64,
    pub num_cpus: f64,
    pub num_gpus: f64,
    pub resources: View,
    pub object_store_memory: u64,
    pub engine_options: View,
}

#[repr(C)]
pub struct TemplateOptions {
    pub struct_size: usize,
    pub name: View,
    pub num_returns: u32,
    pub max_retries: i32,
    pub retry_exceptions: u32,
    pub max_calls: u32,
    pub num_cpus: f64,
    pub num_gpus: f64,
    pub memory: u64,
    pub resources: View,
    pub runtime_env: View,
    pub actor_name: View,
    pub name_space: View,
    pub detached: u32,
    pub get_if_exists: u32,
    pub max_restarts: i32,
    pub max_task_retries: i32,
    pub max_concurrency: u32,
    pub reserved: u32,
    pub extra: View,
}

#[repr(C)]
pub struct Args {
    pub packed: View,
    pub refs: *const Object,
    pub nrefs: usize,
}

#[repr(C)]
pub struct TaskInfo {
    pub struct_size: usize,
    pub number: u64,
    pub attempt: u32,
    pub num_returns: u32,
    pub nrefs: u32,
    pub reserved: u32,
    pub name: View,
    pub args: View,
}

#[repr(C)]
pub struct ResultValue {
    pub body: View,
    pub format: u32,
    pub reserved: u32,
}

pub const FUNCTION: u32 = 1;
pub const ACTOR: u32 = 2;
pub const METHOD: u32 = 3;
pub const NAMED: u32 = 4;

extern "C" {
    pub fn raygo_version() -> *const c_char;
    pub fn raygo_abi_version() -> u32;
    pub fn raygo_status_name(status: Status) -> *const c_char;
    pub fn raygo_error_clear(err: *mut Error);
    pub fn raygo_buf_release(buf: *mut Buf);

    pub fn raygo_token_new(out: *mut Token, err: *mut Error) -> Status;
    pub fn raygo_token_fire(token: Token, err: *mut Error) -> Status;
    pub fn raygo_token_release(token: Token, err: *mut Error) -> Status;

    pub fn raygo_start(options: *const Options, out: *mut Runtime, err: *mut Error) -> Status;
    pub fn raygo_connect(address: View, options: *const Options, out: *mut Runtime, err: *mut Error) -> Status;
    pub fn raygo_shutdown(rt: Runtime, timeout_ns: i64, err: *mut Error) -> Status;
    pub fn raygo_runtime_release(rt: Runtime, err: *mut Error) -> Status;

    pub fn raygo_put(rt: Runtime, format: u32, body: View, timeout_ns: i64, token: Token, out: *mut Object, err: *mut Error) -> Status;
    pub fn raygo_get(rt: Runtime, objects: *const Object, n: usize, timeout_ns: i64, token: Token, out: *mut Buf, err: *mut Error) -> Status;
    pub fn raygo_wait(
        rt: Runtime, objects: *const Object, n: usize, need: usize, timeout_ns: i64, token: Token, ready: *mut u8, nready: *mut usize, err: *mut Error,
    ) -> Status;
    pub fn raygo_retain(objects: *const Object, n: usize, err: *mut Error) -> Status;
    pub fn raygo_release(objects: *const Object, n: usize, err: *mut Error) -> Status;

    pub fn raygo_template_new(rt: Runtime, kind: u32, function: View, options: *const TemplateOptions, out: *mut Template, err: *mut Error) -> Status;
    pub fn raygo_template_release(tmpl: Template, err: *mut Error) -> Status;
    pub fn raygo_submit(rt: Runtime, tmpl: Template, args: *const Args, returns: *mut Object, err: *mut Error) -> Status;
    pub fn raygo_cancel(rt: Runtime, object: Object, flags: u32, err: *mut Error) -> Status;
    pub fn raygo_call(rt: Runtime, name: View, args: *const Args, timeout_ns: i64, token: Token, out: *mut Buf, err: *mut Error) -> Status;

    pub fn raygo_actor_new(rt: Runtime, tmpl: Template, args: *const Args, timeout_ns: i64, token: Token, out: *mut Actor, err: *mut Error) -> Status;
    pub fn raygo_actor_call(rt: Runtime, actor: Actor, method: Template, args: *const Args, returns: *mut Object, err: *mut Error) -> Status;
    pub fn raygo_actor_kill(rt: Runtime, actor: Actor, no_restart: i32, err: *mut Error) -> Status;
    pub fn raygo_actor_release(actor: Actor, err: *mut Error) -> Status;

    pub fn raygo_serve(rt: Runtime, name: View, concurrency: u32, timeout_ns: i64, token: Token, err: *mut Error) -> Status;
    pub fn raygo_unserve(rt: Runtime, name: View, timeout_ns: i64, token: Token, err: *mut Error) -> Status;
    pub fn raygo_task_next(rt: Runtime, timeout_ns: i64, token: Token, out: *mut Task, info: *mut TaskInfo, err: *mut Error) -> Status;
    pub fn raygo_task_arg(task: Task, i: u32, out: *mut Buf, err: *mut Error) -> Status;
    pub fn raygo_task_cancelled(task: Task, cancelled: *mut i32, err: *mut Error) -> Status;
    pub fn raygo_task_reply(task: Task, values: *const ResultValue, n: usize, timeout_ns: i64, token: Token, err: *mut Error) -> Status;
    pub fn raygo_task_fail(task: Task, kind: View, message: View, err: *mut Error) -> Status;
}

#[cfg(feature = "arrow")]
extern "C" {
    pub fn raygo_arrow_stream(buf: *mut Buf, out: *mut arrow_array::ffi_stream::FFI_ArrowArrayStream, err: *mut Error) -> Status;
    pub fn raygo_put_arrow_stream(
        rt: Runtime, stream: *mut arrow_array::ffi_stream::FFI_ArrowArrayStream, timeout_ns: i64, token: Token, out: *mut Object, err: *mut Error,
    ) -> Status;
}
