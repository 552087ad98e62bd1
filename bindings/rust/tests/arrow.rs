//! Record batches to and from a running Python driver, as driver.rs; without one, what needs Python is left out.
#![cfg(feature = "arrow")]

use std::{env, sync::Arc, time::Duration};

use arrow_array::{cast::AsArray, types::Int32Type, Array, ArrayRef, DictionaryArray, Int32Array, ListArray, RecordBatch, RecordBatchIterator, StringArray};
use raygo::{Code, Options, Runtime};

const WITHIN: Option<Duration> = Some(Duration::from_secs(60));
const ROWS: i32 = 50_000;

fn address() -> Option<String> {
    env::var("RAYGO_TEST_ADDRESS").ok().filter(|a| !a.is_empty())
}

fn runtime() -> Runtime {
    match address() {
        Some(address) => Runtime::connect(&address).unwrap(),
        None => Runtime::start(&Options { num_cpus: Some(2.0), object_store_memory: Some(64 << 20), python: "/nonexistent".into(), ..Options::default() }).unwrap(),
    }
}

fn batch() -> RecordBatch {
    let numbers: Int32Array = (0..ROWS).map(|i| (i % 5 != 0).then_some(i)).collect();
    let text = StringArray::from_iter((0..ROWS).map(|i| (i % 7 != 0).then(|| format!("text {i}"))));
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>((0..ROWS).map(|i| (i % 3 != 0).then(|| (0..i % 4).map(Some))));
    let colours: DictionaryArray<Int32Type> = (0..ROWS).map(|i| ["red", "green"][i as usize % 2]).collect();
    let columns: [(&str, ArrayRef); 4] = [("n", Arc::new(numbers)), ("s", Arc::new(text)), ("l", Arc::new(lists)), ("d", Arc::new(colours))];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

fn reader(batches: &[RecordBatch]) -> impl arrow_array::RecordBatchReader + Send {
    RecordBatchIterator::new(batches.to_vec().into_iter().map(Ok), batches[0].schema())
}

#[test]
fn batches_come_back_in_place() {
    let rt = runtime();
    let batches = [batch(), batch().slice(1234, 99), batch().slice(0, 0)];
    let object = rt.put_batches(reader(&batches)).unwrap();
    let [one, two] = [0, 1].map(|_| object.batches(WITHIN).unwrap().map(Result::unwrap).collect::<Vec<_>>());
    drop(object);
    assert_eq!(one, batches);
    assert_eq!(two, batches);
    let address = |b: &RecordBatch| b.column(0).as_primitive::<Int32Type>().values().as_ptr();
    assert_eq!(address(&one[0]), address(&two[0])); // the same memory
    assert_eq!(address(&one[0]) as usize % 64, 0);
    let kept = one[0].column(1).clone();
    drop((one, two, rt)); // one column alone keeps it
    assert_eq!(kept.as_string::<i32>().value(49_999), "text 49999");
}

#[test]
fn what_is_no_table_says_so() {
    let rt = runtime();
    let error = rt.put("text").unwrap().batches(WITHIN).err().unwrap();
    assert_eq!(error.code(), Code::Invalid);
    assert!(error.to_string().contains("no Arrow data"), "{error}");
}

#[test]
fn python_reads_and_writes_tables() {
    if address().is_none() {
        eprintln!("no Python driver: skipped");
        return;
    }
    let rt = runtime();
    let batch = batch();
    let object = rt.put_batches(reader(std::slice::from_ref(&batch))).unwrap();
    assert_eq!(rt.call::<_, i32>("builtins:len", (&object,), WITHIN).unwrap(), ROWS);
    let copied = rt.function("copy:copy").unwrap().submit((&object,)).unwrap();
    let got: Vec<_> = copied.batches(WITHIN).unwrap().map(Result::unwrap).collect();
    assert_eq!(got, [batch]);
    assert_eq!(got[0].column(0).null_count(), ROWS as usize / 5);
}
