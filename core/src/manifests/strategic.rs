//! Strategic merge patches of all workloads as one stream of documents, for `kubectl patch` and for one's own
//! tools.

use crate::rightsizing::report::Report;

use super::{
    patch::{Autoscalers, patches},
    yaml_text::document,
};

/// The patches, one document for each workload. What is left out is a comment.
pub fn stream(report: &Report) -> String {
    let mut text = String::new();
    for patch in patches(report, Autoscalers::LeftOut) {
        for remark in &patch.remarks {
            text.extend(["# ", remark, "\n"]);
        }
        if let Some(patch) = &patch.patch {
            text.push_str("---\n");
            text.push_str(&document(patch));
        }
    }
    text
}
