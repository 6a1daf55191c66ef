//! How far a backup has come.

use crate::types::fields::object;

object! {
    /// Whether changed blocks are remembered.
    pub struct ChangedBlockTracking {
        /// The backup under way, or the last.
        pub backup_status: Option<BackupStatus>,
        /// Whether they are.
        pub state: String,
    }

    /// A backup.
    pub struct BackupStatus {
        /// What is to be said of it.
        pub backup_msg: Option<String>,
        /// Its name.
        pub backup_name: Option<String>,
        /// From which point on the next one reckons.
        pub checkpoint_name: Option<String>,
        /// It is over.
        pub completed: Option<bool>,
        /// When it was over.
        pub end_timestamp: Option<String>,
        /// It did not succeed.
        pub failed: Option<bool>,
        /// Whether the guest's file systems were held still.
        pub quiesce_status: Option<String>,
        /// When it began.
        pub start_timestamp: Option<String>,
        /// What it holds.
        pub volumes: Vec<BackupVolume>,
    }

    /// A volume in a backup.
    pub struct BackupVolume {
        /// Its name.
        pub volume_name: String,
    }
}
