//! libFuzzer's way to the reader of XML-RPC calls.
#![no_main]

#[path = "../../../scheduler/web/src/api/xml_rpc.rs"]
#[expect(dead_code, reason = "only the reader is called")]
mod xml_rpc;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(call) = xml_rpc::read(bytes) {
        assert!(call.params.len() <= 16 && !call.method.is_empty());
        // A byte that is not UTF-8 becomes a character of two.
        let length = call.method.len() + call.params.iter().map(String::len).sum::<usize>();
        assert!(length <= 2 * bytes.len(), "{length} bytes out of {}", bytes.len());
    }
});
