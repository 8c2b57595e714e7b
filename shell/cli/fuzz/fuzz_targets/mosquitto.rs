#![no_main]
#![allow(dead_code)]

#[path = "../../src/migrate/mod.rs"]
mod migrate;

libfuzzer_sys::fuzz_target!(|data: &[u8]| migrate::fuzz::mosquitto(data));
