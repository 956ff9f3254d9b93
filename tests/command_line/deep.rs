//! Runs upstream's programs: their help, and the syntax that they accept.

use xtask::test_programs;

use super::{FORMS, HELPS, accepts, combined_output, start};
use crate::support::{skipped::report_skipped, upstream_recording};

#[test]
fn upstreams_programs_print_the_recorded_help() {
    let Ok(programs) = test_programs::autoscaler().map_err(report_skipped) else { return };
    for (role, page) in HELPS {
        let program = match role {
            "recommender" => &programs.recommender,
            "updater" => &programs.updater,
            _ => &programs.admission_controller,
        };
        // The first line contains the path of the program.
        let help = combined_output(&start(program, &["--help"]))
            .replace(&*program.to_string_lossy(), role);
        page.write_or_compare(&help);
    }
}

#[test]
fn upstreams_recommender_accepts_and_rejects_the_listed_flag_forms() {
    if upstream_recording::is_recording() {
        return;
    }
    let Ok(programs) = test_programs::autoscaler().map_err(report_skipped) else { return };
    for (form, taken) in FORMS {
        assert_eq!(accepts(&programs.recommender, &[], form), taken, "{form:?}");
    }
}
