//! The report for people: plain lines that read well in 80 columns, without colour and in a pipe.

use super::{
    config::Config,
    report::{BothScenarios, DemoReport},
    sparklines::render_sparklines,
    tables::{recommendations, render_scenarios, rows},
};
pub use crate::report::style::Style;
use crate::report::style::{BOLD, DIM, push_line, wrap};

/// What is said before anything is computed.
pub fn opening(config: &Config, look: &Style) -> String {
    let mut out = String::new();
    let Config { seed, days, .. } = config;
    let days =
        if *days == 1 { "one virtual day".to_owned() } else { format!("{days} virtual days") };
    push_line(
        &mut out,
        format_args!(
            "{}",
            look.paint(BOLD, &format!("Plimsoll demo: {days}, lived twice (seed {seed})"))
        ),
    );
    out.push_str(
        "The load is invented; the recommender, its history and its storage are the real\n\
         ones. One life goes without recommendations, the other applies them.\n",
    );
    out
}

/// The outcome.
pub fn outcome(report: &DemoReport, look: &Style) -> String {
    let mut out = String::new();
    render_scenarios(&mut out, report, look);
    recommendations(&mut out, report, look);
    render_sparklines(&mut out, report, look);
    remarks(&mut out, report, look);
    next(&mut out, look);
    out
}

/// What the figures alone do not say.
fn remarks(out: &mut String, report: &DemoReport, look: &Style) {
    look.heading(out, "WHAT TO MAKE OF IT", "");
    let mut remark = |text: &str| {
        let bullet = look.choose_glyphs("•", "-");
        for (index, line) in wrap(text, look.width.min(96) - 4).iter().enumerate() {
            push_line(out, format_args!("  {} {line}", if index == 0 { bullet } else { " " }));
        }
    };
    remark(&summary(report));
    let more: Vec<String> = report
        .containers
        .iter()
        .filter_map(|container| Some((container, container.recommendation.as_ref()?)))
        .flat_map(|(container, recommended)| {
            rows(container, recommended).into_iter().map(|row| (container.container.clone(), row))
        })
        .filter(|(_, row)| row.change > 0.0)
        .map(|(name, row)| {
            format!("{name} {} {} instead of {}", row.resource, row.target, row.request)
        })
        .collect();
    if !more.is_empty() {
        remark(&format!("It asks for more where too little was requested: {}.", more.join("; ")));
    }
    for container in &report.containers {
        let BothScenarios { without, with } = &container.lives;
        if with.oom_kills > 0 {
            remark(&format!(
                "{} was killed {} without, {} with{}: {}",
                container.container,
                times(without.oom_kills),
                times(with.oom_kills),
                match with.replaced_pods {
                    0 => String::new(),
                    1 => ", where one of its pods was replaced".to_owned(),
                    pods => format!(", where {pods} of its pods were replaced"),
                },
                if without.oom_kills > with.oom_kills {
                    "more memory and a fresh pod buy time, they do not mend a leak."
                } else {
                    "its recommendation does not fit it."
                }
            ));
        }
    }
    remark(
        "Pods were replaced by a stand-in for the real updater: it gives at once, and takes away \
         after a day of a pod's life. The next run of a job starts with the target. Limits keep \
         their ratio to the requests.",
    );
    remark("Throttled minutes are counted for each container: two in one minute make two.");
    for restart in &report.history.restarts {
        remark(&format!(
            "Half-way the recommender was stopped and a new one started from the {} store ({} saves \
             in all): {} of {} recommendations were the same to the byte.",
            report.history.backend, report.history.saves, restart.unchanged, restart.compared
        ));
    }
}

/// The outcome in one sentence.
fn summary(report: &DemoReport) -> String {
    let BothScenarios { without, with } = &report.lives;
    let requested = |what: &str, without: f64, with: f64| {
        let word = if with <= without { "less" } else { "more" };
        let change = if without > 0.0 { (with - without).abs() * 100.0 / without } else { 0.0 };
        format!("{change:.0} % {word} {what}")
    };
    let kills = match (without.oom_kills, with.oom_kills) {
        (0, 0) => "no container is killed in either life".to_owned(),
        (without, with) => {
            format!("containers are killed {} instead of {}", times(with), times(without))
        }
    };
    format!(
        "With recommendations {} and {} are requested; {kills}.",
        requested("CPU", without.core_hours(), with.core_hours()),
        requested("memory", without.gib_hours(), with.gib_hours()),
    )
}

fn next(out: &mut String, look: &Style) {
    look.heading(out, "NEXT", "");
    let command = &look.command;
    for (arguments, what) in [
        ("demo --seed 7", "other load"),
        ("demo --days 30", "a longer life"),
        ("demo --output json", "all of it as data, and why"),
        ("crds", "the CustomResourceDefinitions"),
        ("--help", "everything else"),
    ] {
        push_line(
            out,
            format_args!("  {:<44}{}", format!("{command} {arguments}"), look.paint(DIM, what)),
        );
    }
}

fn times(count: i64) -> String {
    match count {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        more => format!("{more} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::demo::sparkline::Glyphs;

    #[test]
    fn colours_change_nothing_but_colour() {
        let look = |colour| Style {
            width: 80,
            colour,
            glyphs: Glyphs::Ascii,
            command: "plimsoll".to_owned(),
        };
        let config = Config {
            seed: 1,
            days: 8,
            store: None,
            settings: plimsoll_core::recommender::Settings::default(),
        };
        let painted = opening(&config, &look(true));
        let plain = opening(&config, &look(false));
        assert_ne!(painted, plain);
        assert_eq!(painted.replace("\x1b[1m", "").replace("\x1b[0m", ""), plain);
    }
}
