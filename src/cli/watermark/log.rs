//! The flags of the watermark controller's log, with upstream's names.

use clap::Args;

use crate::{
    cli::log::{ERRORS, WARNINGS},
    controllers::runtime::config::{LogConfig, LogFormat},
};

/// The log flags.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Logging")]
pub struct LogArgs {
    /// Log level: `debug`, `info`, or `warn`, `error` and above for less
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = level)]
    #[arg(env = "PLIMSOLL_FLAG_LOGLEVEL", hide_env = true)]
    loglevel: i32,
    /// Log format: `json`, or `console` for text lines
    #[arg(long = "logEncoder", id = "logEncoder", value_name = "FORM", default_value = "json")]
    #[arg(value_parser = form)]
    #[arg(env = "PLIMSOLL_FLAG_LOGENCODER", hide_env = true)]
    form: LogFormat,
    /// Accepted, without effect: times are RFC 3339
    #[arg(long, value_name = "FORM", default_value = "millis")]
    #[arg(env = "PLIMSOLL_FLAG_LOG_TIMESTAMP_FORMAT", hide_short_help = true, hide_env = true)]
    log_timestamp_format: String,
}

impl LogArgs {
    /// Builds the log settings.
    pub const fn log(&self) -> LogConfig {
        LogConfig { verbosity: self.loglevel, format: self.form, file: None, stderr: true }
    }
}

/// Maps a level of upstream's logging library to klog's verbosity.
fn level(text: &str) -> Result<i32, String> {
    match text.to_ascii_lowercase().as_str() {
        "debug" => Ok(5),
        "info" | "" => Ok(4),
        "warn" | "warning" => Ok(WARNINGS),
        "error" | "dpanic" | "panic" | "fatal" => Ok(ERRORS),
        _ => Err("use debug, info, warn, error, dpanic, panic or fatal".to_owned()),
    }
}

fn form(text: &str) -> Result<LogFormat, String> {
    match text {
        "json" => Ok(LogFormat::Json),
        "console" => Ok(LogFormat::Text),
        _ => Err("use json or console".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{ERRORS, WARNINGS};
    use crate::{cli::watermark_config, controllers::runtime::config::LogFormat};

    #[test]
    fn log_levels_and_formats_are_those_of_zap() {
        let of = |flags: &[&str]| {
            let config = watermark_config(flags, |_| String::new()).expect("flags that make sense");
            (config.process.log.verbosity, config.process.log.format)
        };
        assert_eq!(of(&[]), (4, LogFormat::Json));
        assert_eq!(of(&["-loglevel=debug", "-logEncoder=console"]), (5, LogFormat::Text));
        assert_eq!(of(&["-loglevel", "ERROR"]).0, ERRORS);
        assert_eq!(of(&["-loglevel=warn"]).0, WARNINGS);
        for bad in ["-loglevel=2", "-logEncoder=text", "-logencoder=json"] {
            assert!(watermark_config(&[bad], |_| String::new()).is_err(), "{bad}");
        }
    }
}
