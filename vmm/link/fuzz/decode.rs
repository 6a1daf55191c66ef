//! Any bytes with any number of descriptors either are a message that says the same again, or are refused.
#![no_main]

use corten_link::Message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (descriptors, bytes) = input;
    if let Ok(message) = Message::decode(bytes, usize::from(descriptors)) {
        let again = message.encode().expect("what was accepted can be sent");
        let read = Message::decode(&again, message.roles().len()).expect("and read");
        assert_eq!(read, message);
    }
});
