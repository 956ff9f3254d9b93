//! One observation of one replica, as a backend with raw history passes it to the sink.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::types::{Resource, Time};

/// An observation of one container of one pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Name of the pod: memory peaks are tracked per pod. Shared, because thousands of samples in a row have it.
    pub replica: Arc<str>,
    /// Time of the observation, or the end of the span that it covers.
    pub at: Time,
    /// The span that the value covers; `None` for a point sample.
    pub covers: Option<Duration>,
    /// The value.
    pub measurement: Measurement,
}

/// Consecutive samples of one container of one pod and one resource, in order of time.
#[derive(Clone, Copy, Debug)]
pub struct SampleBatch<'a> {
    /// Name of the pod.
    pub replica: &'a Arc<str>,
    /// What the samples measure the usage of.
    pub gauge: Resource,
    /// The span that each sample covers, as in [`Sample::covers`].
    pub covers: Option<Duration>,
    /// Time and value (cores or bytes) of each sample.
    pub points: &'a [(Time, f64)],
}

impl<'a> SampleBatch<'a> {
    pub fn samples(self) -> impl Iterator<Item = Sample> + 'a {
        let Self { replica, gauge, covers, points } = self;
        points.iter().map(move |&(at, value)| {
            let measurement = match gauge {
                Resource::Cpu => Measurement::CpuCores(value),
                Resource::Memory => Measurement::MemoryBytes(value),
            };
            Sample { replica: Arc::clone(replica), at, covers, measurement }
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Measurement {
    /// CPU in use, in cores.
    CpuCores(f64),
    /// Memory in use (or its maximum over the span), in bytes.
    MemoryBytes(f64),
    OutOfMemory {
        /// Its memory request at that time, in bytes; 0 if it had none.
        request_bytes: i64,
        /// Its memory limit at that time, in bytes, if it had one.
        limit_bytes: Option<i64>,
    },
}
