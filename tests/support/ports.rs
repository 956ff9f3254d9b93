//! Ports on loopback that concurrent test processes can claim without conflicts.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Below the kernel's range of ephemeral ports, so no outgoing connection takes one while a server starts.
const FIRST: u16 = 20_000;
/// A process claims ports in blocks, so that there is one lock file per block and not per port.
const BLOCK: u16 = 100;
const BLOCKS: u16 = 120;

/// The blocks of this process. The kernel releases the locks, even if the process is killed.
static OWN_BLOCKS: Mutex<Vec<PortBlock>> = Mutex::new(Vec::new());

/// A port that is reserved while this value lives.
#[derive(Debug)]
pub struct Port {
    number: u16,
}

#[derive(Debug)]
struct PortBlock {
    first: u16,
    taken: [bool; BLOCK as usize],
    /// The next port to try: a released port is reused only after all others.
    next: u16,
    /// Never read: holding the lock is the claim.
    _lock: File,
}

// === impl Port ===

impl Port {
    /// Claims a free port.
    pub fn claim() -> Self {
        let mut ours = OWN_BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(number) = ours.iter_mut().find_map(PortBlock::take) {
                return Self { number };
            }
            ours.push(PortBlock::claim());
        }
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let mut ours = OWN_BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        for block in ours.iter_mut() {
            if let Some(taken) =
                block.taken.get_mut(usize::from(self.number.wrapping_sub(block.first)))
            {
                *taken = false;
            }
        }
    }
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.number)
    }
}

// === impl PortBlock ===

impl PortBlock {
    /// Claims a block that no process has, including this one.
    fn claim() -> Self {
        let claims = xtask::cache::folder().expect("there is a cache folder").join("locks/ports");
        fs::create_dir_all(&claims).expect("the cache folder is writable");
        // Each process starts at another block, so that claims rarely contend.
        let start = (std::process::id() % u32::from(BLOCKS)) as u16;
        for step in 0..BLOCKS {
            let first = FIRST + (start + step) % BLOCKS * BLOCK;
            let name = format!("{first}-{}", first + BLOCK - 1);
            let lock = File::create(claims.join(name)).expect("the cache is writable");
            // A second lock by this process fails as well: the lock belongs to the open file.
            if lock.try_lock().is_ok() {
                return Self { first, taken: [false; BLOCK as usize], next: 0, _lock: lock };
            }
        }
        panic!("no free ports between {FIRST} and {}", FIRST + BLOCKS * BLOCK);
    }

    /// A port that this process has not claimed, and on which no other program listens.
    fn take(&mut self) -> Option<u16> {
        for _ in 0..BLOCK {
            let index = self.next;
            self.next = (index + 1) % BLOCK;
            let number = self.first + index;
            if !self.taken[usize::from(index)]
                && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
            {
                self.taken[usize::from(index)] = true;
                return Some(number);
            }
        }
        None
    }
}

#[test]
fn more_ports_than_a_block_are_distinct() {
    let ports: Vec<_> = (0..BLOCK + 5).map(|_| Port::claim()).collect();
    let mut numbers: Vec<_> = ports.iter().map(Port::number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), ports.len());
}
