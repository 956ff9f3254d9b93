//! A pod of the workload.

use crate::sim::noise::Noise;

/// Steps of the window of a sample: a minute.
const WINDOW: usize = 4;

#[derive(Clone, Debug, PartialEq)]
pub struct Replica {
    /// A number that no other pod of the run has.
    pub id: u64,
    /// The CPU request in millicores.
    pub request: i64,
    pub created: u64,
    /// The step in which it became or becomes ready.
    pub ready: u64,
    /// The step in which its request was last set.
    pub sized: u64,
    /// Its share of the load relative to other pods.
    weight: f64,
    /// Usage in the last steps, the oldest first.
    usage: [f64; WINDOW],
    /// Steps with usage.
    measured: usize,
}

impl Replica {
    /// A new pod, which becomes ready at a step.
    pub fn new(id: u64, request: i64, created: u64, ready: u64, noise: Noise) -> Self {
        let weight = 1.0 + 0.1 * noise.for_name("weight").bell_shaped(id);
        Self {
            id,
            request,
            created,
            ready,
            sized: created,
            weight,
            usage: [0.0; WINDOW],
            measured: 0,
        }
    }

    /// Whether it is ready and gets its share of the load.
    pub fn is_ready(&self, step: u64) -> bool {
        self.ready <= step
    }

    /// Its share of the load relative to other pods; 0 if it is not ready.
    pub fn weight(&self, step: u64) -> f64 {
        if self.is_ready(step) { self.weight } else { 0.0 }
    }

    pub fn record(&mut self, usage: f64) {
        self.usage.rotate_left(1);
        if let Some(last) = self.usage.last_mut() {
            *last = usage;
        }
        self.measured = (self.measured + 1).min(WINDOW);
    }

    /// The usage in the last minute in millicores; `None` if the pod has not run for a minute.
    pub fn sample(&self) -> Option<i64> {
        let mean = self.usage.iter().sum::<f64>() / WINDOW as f64;
        (self.measured == WINDOW).then(|| mean.round() as i64)
    }
}
