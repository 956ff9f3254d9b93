//! One observation of one replica: what a backend that keeps raw history hands to the sink.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::types::Time;

/// What was seen of one container of one pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Name of the pod: memory peaks are kept apart by pod. Shared, because thousands of samples in a row have it.
    pub replica: Arc<str>,
    /// When the observation was made, or when the span that it stands for ended.
    pub at: Time,
    /// The span that the value stands for; `None` for a point sample.
    pub covers: Option<Duration>,
    /// The value.
    pub measurement: Measurement,
}

/// Samples of one container of one pod, all of CPU or all of memory, in order of time: as many as a backend has at once.
#[derive(Clone, Copy, Debug)]
pub struct SampleBatch<'a> {
    /// Name of the pod.
    pub replica: &'a Arc<str>,
    /// What was measured.
    pub gauge: UsageMetric,
    /// The span that each of them stands for, as in a [`Sample`].
    pub covers: Option<Duration>,
    /// When, and how much: in cores or bytes.
    pub points: &'a [(Time, f64)],
}

/// What the samples of a [`Run`] measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageMetric {
    /// CPU in use, in cores.
    Cpu,
    /// Memory in use, in bytes.
    Memory,
}

impl<'a> SampleBatch<'a> {
    /// The samples one by one.
    pub fn samples(self) -> impl Iterator<Item = Sample> + 'a {
        let Self { replica, gauge, covers, points } = self;
        points.iter().map(move |&(at, value)| {
            let measurement = match gauge {
                UsageMetric::Cpu => Measurement::CpuCores(value),
                UsageMetric::Memory => Measurement::MemoryBytes(value),
            };
            Sample { replica: Arc::clone(replica), at, covers, measurement }
        })
    }
}

/// The value of a [`Sample`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Measurement {
    /// CPU in use, in cores.
    CpuCores(f64),
    /// Memory in use (or its maximum over the span), in bytes.
    MemoryBytes(f64),
    /// The container was killed for lack of memory.
    OutOfMemory {
        /// Its memory request at that time, in bytes; 0 when it had none.
        request_bytes: i64,
        /// Its memory limit at that time, in bytes, when it had one.
        limit_bytes: Option<i64>,
    },
}
