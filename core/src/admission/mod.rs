//! What admission answers: patches of new pods, and what is wrong with VPA objects. Pure: plain data in, operations,
//! errors and warnings out.

pub mod boost;
pub mod pod;
pub mod validation;

pub use pod::{Admission, Admitted, admit};
