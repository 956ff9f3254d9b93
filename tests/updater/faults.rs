//! Faults of an updater and of what it stands on, one a test: what was begun is neither repeated nor exceeded.
//!
//! Pods that go come back sized, by the webhook of their namespace, so that each has a reason to go once and none to go
//! twice. What dies or freezes is the real binary; where it dies is chosen on its way to the API server.

mod api_server_outage;
mod clock_skew;
mod leader_failover;
mod process_kill;
mod two_leaders;
