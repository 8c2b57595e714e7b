#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sedge_jq::fuzz::program(data));
