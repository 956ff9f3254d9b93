//! A mix of similar workloads with fixed names: the same in every process.

use plimsoll_core::types::ObjectKey;
use serde::{Deserialize, Serialize};

use super::support::random::Random;

const SEED: u64 = 46;
const CONTAINERS: [&str; 5] = ["app", "proxy", "log", "cache", "agent"];
/// Alphabet of the API server's generated names and of template hashes.
const RANDOM: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const HASH: &[u8] = b"456789bcdf";

/// Numbers of objects, each within the previous one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WorkloadMix {
    pub namespaces: usize,
    pub workloads: usize,
    pub replicas: usize,
    pub containers: usize,
}

/// A pod and its owner.
#[derive(Clone, Debug)]
pub struct Pod {
    pub deployment: String,
    pub set: String,
    pub name: String,
}

impl WorkloadMix {
    /// Two containers in two pods of each Deployment, 200 containers per namespace.
    pub fn of_hundreds(containers: usize) -> Self {
        let namespaces = containers.div_ceil(200).max(1);
        Self { namespaces, workloads: 50, replicas: 2, containers: 2 }
    }

    /// Five containers in the single pod of each Deployment, 250 containers per namespace.
    pub fn of_fives(containers: usize) -> Self {
        let namespaces = containers.div_ceil(250).max(1);
        Self { namespaces, workloads: 50, replicas: 1, containers: 5 }
    }

    /// Number of all containers.
    pub fn all(self) -> usize {
        self.namespaces * self.workloads * self.replicas * self.containers
    }

    /// A VPA for each Deployment, with the same name, and the owner of its pods.
    pub fn vpas(self) -> impl Iterator<Item = (ObjectKey, String)> {
        (0..self.namespaces).flat_map(move |namespace| {
            (0..self.workloads).map(move |workload| {
                let name = deployment(workload);
                let owner = format!("apps/Deployment/{name}");
                (ObjectKey::new(namespace_called(namespace), name), owner)
            })
        })
    }

    /// The pods of a namespace.
    pub fn pods(self, namespace: usize) -> impl Iterator<Item = Pod> {
        (0..self.workloads * self.replicas).map(move |index| {
            let workload = index / self.replicas;
            let derive = |what: &[u64]| Random::derive(SEED, &[&[namespace as u64], what].concat());
            let mut noise = derive(&[workload as u64]);
            let hash = word(&mut noise, HASH, 10);
            let random = word(&mut derive(&[workload as u64, index as u64]), RANDOM, 5);
            let deployment = deployment(workload);
            let set = format!("{deployment}-{hash}");
            Pod { deployment, name: format!("{set}-{random}"), set }
        })
    }

    /// Container names of each pod.
    pub fn names(self) -> &'static [&'static str] {
        &CONTAINERS[..self.containers.min(CONTAINERS.len())]
    }
}

/// The name of a namespace.
pub fn namespace_called(index: usize) -> String {
    format!("team-{index:03}")
}

fn deployment(index: usize) -> String {
    format!("web-{index:02}")
}

fn word(noise: &mut Random, letters: &[u8], length: usize) -> String {
    (0..length).map(|_| char::from(*noise.pick(letters))).collect()
}

/// A number from 0 to 1 derived from seed and time.
pub fn chance(seed: u64, at: i64) -> f64 {
    let number = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at.unsigned_abs()).number();
    (number >> 11) as f64 / (1_u64 << 53) as f64
}
