//! Golden vectors, properties, and both behaviors of each fix.

mod averages;
mod comparisons;
mod fixes;
mod fixture;
mod metric_faults;
mod options;
mod passes;
mod pods;
mod properties;
mod quirks;
mod rates;
mod series_usage;
mod texts;
mod utilization;
mod windows;
