//! Sockets between Linux guests on Corten's machine and the control peer, both ways. These run in a node, in the cage,
//! where `guests` starts them.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use corten_link::{Event, Request, Role, VsockDescription};
use corten_tests::guest::ScriptedGuest;
use corten_tests::process::VmProcess;

/// A boot takes 5 s in a quiet emulated node.
const BOOT: Duration = Duration::from_secs(180);

const SCRIPT: &str = r#"
echoes VSOCK-LISTEN:6000 &
listener=$!
until grep -q . /proc/$listener/cmdline; do sleep 0.1; done
echo "ADDRESS $(tool socat -V | grep -c VSOCK) LISTENING"
echo from the guest | tool socat -t 60 - VSOCK-CONNECT:2:5000 && echo ANSWERED
if tool socat - VSOCK-CONNECT:2:5001 </dev/null 2>/dev/null; then echo CONNECTED; else echo REFUSED; fi
echo idle >/run/end
"#;

/// The next connection that the guest asks for: its ticket and port.
fn asked(process: &mut VmProcess) -> Result<(u64, u32)> {
    match process.next_event(BOOT)? {
        Event::Connecting { ticket, port } => Ok((ticket, port)),
        other => bail!("{other:?}\n{}", process.console()),
    }
}

/// Has the guest's server echo something. Nobody may listen yet: then the socket is closed unread.
pub(super) fn echo(process: &mut VmProcess) -> Result<()> {
    for _ in 0..600 {
        let (mut ours, theirs) = UnixStream::pair()?;
        let request = Request::Connect { port: 6000 };
        process.must_with(request, &[(Role::connection(), theirs.as_fd())])?;
        drop(theirs);
        ours.set_read_timeout(Some(BOOT))?;
        let text = "to the guest and back. ".repeat(2000);
        let mut writer = ours.try_clone()?;
        let sender = std::thread::spawn({
            let text = text.clone();
            move || {
                let _ = writer.write_all(text.as_bytes());
                let _ = writer.shutdown(Shutdown::Write);
            }
        });
        let mut back = String::new();
        let read = ours.read_to_string(&mut back);
        let _ = sender.join();
        if read.is_ok() && back == text {
            return Ok(());
        }
        ensure!(back.is_empty(), "{} bytes of {} came back", back.len(), text.len());
        std::thread::sleep(Duration::from_millis(100));
    }
    bail!("the guest does not answer:\n{}", process.console())
}

#[test]
fn guest_and_control_peer_connect_to_each_other() -> Result<()> {
    let mut guest = ScriptedGuest::new(1, 256, "vmw_vsock_virtio_transport", SCRIPT)?;
    guest.machine.vsock = Some(VsockDescription { guest_cid: 7 });
    let mut process = guest.boot()?;

    let (ticket, port) = asked(&mut process)?;
    ensure!(port == 5000, "port {port}");
    let (mut ours, theirs) = UnixStream::pair()?;
    let request = Request::GrantConnection { ticket };
    process.must_with(request, &[(Role::connection(), theirs.as_fd())])?;
    drop(theirs);
    ours.set_read_timeout(Some(BOOT))?;
    let mut said = [0; 15];
    ours.read_exact(&mut said)?;
    ensure!(&said == b"from the guest\n", "{said:?}");
    ours.write_all(b"HEARD BY THE HOST\n")?;
    drop(ours);
    process.wait_for("HEARD BY THE HOST", 1, BOOT)?;

    let (ticket, port) = asked(&mut process)?;
    ensure!(port == 5001, "port {port}");
    process.must(Request::RefuseConnection { ticket })?;
    process.wait_for("REFUSED", 1, BOOT)?;

    echo(&mut process)?;
    // A listener outlives the restore; connections do not, and new ones work.
    for _ in 0..2 {
        process = guest.reborn(process)?;
        echo(&mut process)?;
    }
    Ok(())
}
