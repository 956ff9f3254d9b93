//! Owns ports on loopback that several test processes can choose at once without getting in each other's way.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that the kernel gives to outgoing connections, so none of those takes one while a server starts.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port that nobody else takes while this lives.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Held, never read: the lock is the claim, and the kernel gives it back whatever becomes of this process.
    _claim: File,
}

// === impl Port ===

impl Port {
    /// Claims a free one.
    pub fn claim() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let claims = xtask::cache::folder().expect("there is a cache folder").join("locks/ports");
        fs::create_dir_all(&claims).expect("the cache folder is writable");
        // Each process begins elsewhere, so that claims are rarely contended.
        let start = (std::process::id() * 37 % u32::from(COUNT)) as u16;
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let number = FIRST + (start + step % COUNT) % COUNT;
            let claim =
                File::create(claims.join(number.to_string())).expect("the cache is writable");
            if claim.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
            {
                return Self { number, _claim: claim };
            }
        }
        panic!("no free port between {FIRST} and {}", FIRST + COUNT);
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.number)
    }
}
