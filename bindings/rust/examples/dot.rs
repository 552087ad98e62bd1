//! raygo from Rust: values there and back, a Python function called by its name, and a Rust function that Python calls.
//!
//!     cargo run --example dot -- [ADDRESS [CALLS]]
//!
//! Joins the engine of a running program (its socket or session folder; this user's newest without one) and serves until CALLS calls have come.
//! In Python:  raygo.cross_language.named_function("rust.dot").remote([1.0, 2.0], [3.0, 4.0])

use std::{env, time::Duration};

use raygo::{Code, Result, Runtime, Server};

const WITHIN: Option<Duration> = Some(Duration::from_secs(60));

fn main() -> Result<()> {
    let arg = |i| env::args().nth(i).unwrap_or_default();
    let rt = Runtime::connect(&arg(1))?;

    let object = rt.put_bytes(&vec![200; 1 << 20])?;
    let back = object.buf(WITHIN)?; // shared memory: nothing is copied
    println!("put and got {} bytes, the last is {}", back.len(), back[back.len() - 1]);

    let median: f64 = rt.call("statistics:median", (vec![1.0, 4.0, 9.0, 16.0],), WITHIN)?;
    println!("Python says the median is {median}");

    let server = Server::new(&rt).function("rust.dot", |(a, b): (Vec<f64>, Vec<f64>)| {
        if a.len() != b.len() {
            return Err(format!("the lists have {} and {} numbers", a.len(), b.len()));
        }
        Ok(a.iter().zip(&b).map(|(x, y)| x * y).sum::<f64>())
    })?;
    println!("serving rust.dot");
    match server.run(arg(2).parse().ok(), None) {
        Err(error) if matches!(error.code(), Code::Connection | Code::Shutdown) => Ok(()), // the program that we joined has ended
        other => other,
    }
}
