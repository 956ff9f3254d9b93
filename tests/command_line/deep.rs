//! Upstream's programs themselves: what they print, and which forms they take.

use xtask::parts;

use super::{FORMS, HELPS, said, start, takes};
use crate::support::{golden, not_run::not_run};

#[test]
fn upstreams_programs_print_the_help_that_was_recorded() {
    let Ok(programs) = parts::autoscaler().map_err(not_run) else { return };
    for (role, page) in HELPS {
        let program = match role {
            "recommender" => &programs.recommender,
            "updater" => &programs.updater,
            _ => &programs.admission_controller,
        };
        // Its first line has the path of the program.
        let help = said(&start(program, &["--help"])).replace(&*program.to_string_lossy(), role);
        page.keep(&help);
    }
}

#[test]
fn upstreams_recommender_takes_and_refuses_the_forms_of_the_table() {
    if golden::is_recording() {
        return;
    }
    let Ok(programs) = parts::autoscaler().map_err(not_run) else { return };
    for (form, taken) in FORMS {
        assert_eq!(takes(&programs.recommender, &[], form), taken, "{form:?}");
    }
}
