//! Against the engine of a running Python driver, whose address is in `RAYGO_TEST_ADDRESS` (tests/capi/test_bindings.py starts one).
//! Without it, an engine without Python workers is started: what needs Python is then left out.

use std::{env, sync::Arc, thread, time::Duration};

use raygo::{Code, Options, Runtime, Server, Task, Token};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

const WITHIN: Option<Duration> = Some(Duration::from_secs(60));

fn address() -> Option<String> {
    env::var("RAYGO_TEST_ADDRESS").ok().filter(|a| !a.is_empty())
}

/// One engine per process: the tests share it.
fn runtime() -> Runtime {
    use std::sync::OnceLock;
    static RT: OnceLock<Runtime> = OnceLock::new();
    RT.get_or_init(|| match address() {
        Some(address) => Runtime::connect(&address).unwrap(),
        None => Runtime::start(&Options { num_cpus: Some(2.0), object_store_memory: Some(64 << 20), python: "/nonexistent".into(), ..Options::default() }).unwrap(),
    })
    .clone()
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct Point {
    x: f64,
    label: Option<String>,
    tags: Vec<i64>,
}

#[test]
fn values_come_back() {
    let rt = runtime();
    let point = Point { x: 0.1, label: None, tags: vec![i64::MIN, 0, 7] };
    let object = rt.put(&point).unwrap();
    assert_eq!(object.get::<Point>(WITHIN).unwrap(), point);
    let again = object.clone();
    drop(object);
    assert_eq!(again.get::<Point>(WITHIN).unwrap(), point);
    for size in [0, 1, 1000, 70_000, 3 << 20] {
        let bytes: Vec<u8> = (0..size).map(|i| i as u8).collect();
        let object = rt.put_bytes(&bytes).unwrap();
        let buf = object.buf(WITHIN).unwrap();
        drop(object); // the buffer outlives the reference
        assert_eq!(&*buf, &bytes[..]);
    }
    assert_eq!(rt.wait(&[&again], 1, WITHIN).unwrap(), [true]);
}

#[test]
fn errors_say_what_and_why() {
    let rt = runtime();
    let error = rt.call::<_, ()>("no_such_name", (), WITHIN).unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.to_string().contains("no_such_name"), "{error}");
    assert_eq!(rt.function(":x").err().unwrap().code(), Code::Invalid);
    let text = rt.put("text").unwrap();
    assert_eq!(text.get::<i64>(WITHIN).unwrap_err().code(), Code::Invalid);
    assert!(rt.put(&text).err().unwrap().to_string().contains("arguments of a call"));
}

#[test]
fn rust_serves_rust() {
    let rt = runtime();
    let stop = Arc::new(Token::new().unwrap());
    let server = Server::new(&rt)
        .function("rs.add", |(a, b): (i64, i64)| a.checked_add(b).ok_or("too large"))
        .unwrap()
        .function("rs.nothing", |(): ()| Ok::<_, String>(()))
        .unwrap();
    let token = stop.clone();
    let thread = thread::spawn(move || server.run(None, Some(&token)).unwrap_err().code());
    assert_eq!(rt.call::<_, i64>("rs.add", (40, 2), WITHIN).unwrap(), 42);
    let error = rt.call::<_, i64>("rs.add", (i64::MAX, 1), WITHIN).unwrap_err();
    assert_eq!(error.code(), Code::Task);
    assert!(error.to_string().contains("too large") && !error.detail().is_empty());
    assert!(rt.call::<_, i64>("rs.add", ("a", "b"), WITHIN).unwrap_err().to_string().contains("do not fit"));
    let add = rt.function("rs.add").unwrap();
    let sums: Vec<_> = (0..200).map(|i| add.submit((i, 1)).unwrap()).collect();
    for (i, sum) in sums.iter().enumerate() {
        assert_eq!(sum.get::<usize>(WITHIN).unwrap(), i + 1);
    }
    stop.fire();
    assert_eq!(thread.join().unwrap(), Code::Interrupted);
}

#[test]
fn waits_end_early() {
    let rt = runtime();
    let token = Token::new().unwrap();
    token.fire();
    assert_eq!(Task::next(&rt, None, Some(&token)).err().unwrap().code(), Code::Interrupted);
}

#[test]
fn python_functions_and_actors() {
    if address().is_none() {
        eprintln!("no Python driver: skipped");
        return;
    }
    let rt = runtime();
    assert_eq!(rt.call::<_, i64>("operator:add", (40, 2), WITHIN).unwrap(), 42);
    let point = Point { x: -2.5, label: Some("grüße".into()), tags: vec![] };
    assert_eq!(rt.call::<_, Point>("copy:copy", (&point,), WITHIN).unwrap(), point);
    let bytes = rt.put_bytes(&[1, 2]).unwrap();
    assert_eq!(rt.call::<_, ByteBuf>("operator:mul", (&bytes, 2), WITHIN).unwrap().into_vec(), [1, 2, 1, 2]);
    let error = rt.call::<_, f64>("operator:truediv", (1, 0), WITHIN).unwrap_err();
    assert_eq!(error.code(), Code::Task);
    assert!(error.to_string().contains("ZeroDivisionError"), "{error}");

    let queue = rt.actor("collections:deque", "", ()).unwrap();
    queue.call("append", ("first",)).unwrap();
    queue.call("append", (2,)).unwrap();
    assert_eq!(queue.call("__len__", ()).unwrap().get::<i64>(WITHIN).unwrap(), 2);
    assert_eq!(queue.call("popleft", ()).unwrap().get::<String>(WITHIN).unwrap(), "first");
    queue.kill().unwrap();
    assert_eq!(queue.call("popleft", ()).unwrap().get::<i64>(WITHIN).unwrap_err().code(), Code::ActorDied);
}
