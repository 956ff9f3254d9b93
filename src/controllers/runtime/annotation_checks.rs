//! What is wrong with the annotations of a VPA, whoever reads them.

use std::collections::BTreeMap;

use plimsoll_core::{
    api::annotations::InvalidAnnotation, recommender::tuning::Tuning, sizing::VpaOptions,
    updater::guard::maintenance_window::MaintenanceWindows,
};

/// Of all of them.
pub(crate) fn find_invalid(annotations: &BTreeMap<String, String>) -> Vec<InvalidAnnotation> {
    let (_, mut bad) = Tuning::from_annotations(annotations);
    bad.extend(find_invalid_for_writers(annotations));
    bad
}

/// Of those by which pods are changed: they are read whatever the recommender is told.
pub(crate) fn find_invalid_for_writers(
    annotations: &BTreeMap<String, String>,
) -> Vec<InvalidAnnotation> {
    let (_, mut bad) = VpaOptions::from_annotations(annotations);
    bad.extend(MaintenanceWindows::from_annotations(annotations).err());
    bad
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::api::annotations::VPA_KEYS;

    #[test]
    fn no_annotation_is_read_without_its_nonsense_being_named() {
        for key in VPA_KEYS {
            let annotations = [(key.name.to_owned(), "(nonsense)".to_owned())].into();
            let bad = find_invalid(&annotations);
            assert_eq!(bad.iter().map(|bad| bad.key).collect::<Vec<_>>(), [key.name]);
            let is_for_writers = !key.applied_by.contains(&"recommender");
            assert_eq!(find_invalid_for_writers(&annotations).len(), usize::from(is_for_writers));
        }
    }
}
