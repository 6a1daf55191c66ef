//! Small devices at fixed ports.
