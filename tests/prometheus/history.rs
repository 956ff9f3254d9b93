//! History is read from a Prometheus: of the workloads that are asked for, all of it, once, in order.

mod conformance;
mod dialect;
mod disorder;
mod guarded;
mod killed;
mod labelled;
mod live_pods;
mod matchers;
mod on_the_way;
mod owners;
mod recorded;
mod recorder;
pub mod remember;
mod throttled;
mod upstream;
