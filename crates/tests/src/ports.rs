//! Ports for child processes.
//!
//! A port that the system hands out for `:0` can be handed out again, to an outgoing connection or to another
//! test, between the moment it is known and the moment the child binds it. So ports are taken below the range
//! of outgoing connections, each at most once by one test process, and each is seen to be free.

use std::{
    net::{Ipv4Addr, TcpListener},
    sync::atomic::{AtomicU32, Ordering},
};

const LOWEST: u32 = 12_000;
const COUNT: u32 = 18_000;

/// A port on loopback that nobody listens on and that no other caller in this process has been given.
///
/// # Panics
/// When every port of the range is taken.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(211);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port =
            u16::try_from(LOWEST + start.wrapping_add(step) % COUNT).expect("the range ends below 65,536");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port from {LOWEST} to {}", LOWEST + COUNT);
}
