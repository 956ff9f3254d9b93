//! A recommender whose history is in a Prometheus, on a real cluster.

mod away;
mod fallback;
mod first;
mod labelled;
mod live;
mod stage;
mod throttled;
mod unfound;
mod upstream;
