//! Faults that only an updater has, one per test: an operation that has started is not repeated, and no limit is exceeded.
//! Those of every controller are in `tests/faults/`.
//!
//! The webhook of the namespace sizes replacement pods, so each pod has a reason to be evicted once and none to be evicted
//! twice. The process that dies or freezes is the real binary; a proxy to the API server determines where.

mod clock_skew;
mod incomplete_permissions;
mod orphaned_surge;
mod two_leaders;
