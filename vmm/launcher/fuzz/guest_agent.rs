//! Any bytes of an agent, in pieces, either are answers that are within their bounds or are refused; and a sync is found behind
//! whatever came before it.
#![no_main]

use corten_launcher::guest_agent::protocol::{MAX_LINE, MAX_SKIPPED};
use corten_launcher::guest_agent::{Answer, Command, Inbox};
use libfuzzer_sys::fuzz_target;

fn check(answer: &Answer) {
    let length = match answer {
        Answer::Info { version, commands } => {
            version.len() + serde_json::to_vec(commands).expect("plain").len()
        }
        Answer::OperatingSystem(os) => serde_json::to_vec(os).expect("plain").len(),
        Answer::HostName(text) | Answer::Timezone(text) => text.len(),
        Answer::Users(users) => serde_json::to_vec(users).expect("plain").len(),
        Answer::FileSystems(list) => serde_json::to_vec(list).expect("plain").len(),
        Answer::Interfaces(list) => serde_json::to_vec(list).expect("plain").len(),
        Answer::Done | Answer::Number(_) | Answer::FreezeStatus(_) => 0,
    };
    assert!(length < 48 << 10, "{length}");
}

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (kind, piece, bytes) = input;
    let command = Command::PLAIN[usize::from(kind) % Command::PLAIN.len()];
    let mut inbox = Inbox::default();
    for piece in bytes.chunks(usize::from(piece) + 1) {
        inbox.push(piece);
        match inbox.line() {
            Ok(Some(line)) => {
                assert!(line.len() <= MAX_LINE);
                if let Ok(answer) = command.decode(&line) {
                    check(&answer);
                }
            }
            Ok(None) => {}
            // Somebody who is lost syncs.
            Err(_) => break,
        }
    }
    inbox.begin_sync();
    inbox.push(b"\xff{\"return\": 4711}\n");
    assert!(bytes.len() < MAX_SKIPPED);
    let mut last = None;
    while let Some(id) = inbox.sync().expect("that was not much") {
        last = Some(id);
    }
    assert_eq!(last, Some(4711));
});
