mod exact;
mod properties;
mod table;
