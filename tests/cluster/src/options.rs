//! What kind of cluster is wanted.

use anyhow::{Result, bail};
use clap::Args;
use corten_lab::assets::{Assets, hex};
use sha2::{Digest, Sha256};

use crate::addresses::MOST_NODES;
use crate::assets::RECIPES;

/// Options of `up`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// How many nodes; with --control-plane-only they are simulated
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub nodes: u16,
    /// No real nodes: kwok plays them, for tests with many objects
    #[arg(long)]
    pub control_plane_only: bool,
}

impl Options {
    /// Refuses what cannot be.
    pub fn check(&self) -> Result<()> {
        if !self.control_plane_only && self.nodes > u16::from(MOST_NODES) {
            bail!("at most {MOST_NODES} real nodes; more can be had with --control-plane-only");
        }
        Ok(())
    }

    /// How many nodes are VMs.
    pub fn real_nodes(&self) -> u8 {
        if self.control_plane_only { 0 } else { u8::try_from(self.nodes).unwrap_or(MOST_NODES) }
    }

    /// Hash of what a cluster of these options is made of.
    pub fn version(&self, assets: &Assets) -> Result<String> {
        let mut hash = Sha256::new();
        for recipe in RECIPES {
            hash.update(assets.key_of(recipe.name)?);
        }
        hash.update(format!("{} {}", self.nodes, self.control_plane_only));
        Ok(hex(&hash.finalize()[..8]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_real_nodes_than_there_are_addresses_are_refused() {
        let options = Options { nodes: 9, control_plane_only: false };
        assert!(options.check().is_err());
        assert!(Options { control_plane_only: true, ..options }.check().is_ok());
    }

    #[test]
    fn simulated_nodes_are_not_real() {
        assert_eq!(Options { nodes: 100, control_plane_only: true }.real_nodes(), 0);
        assert_eq!(Options { nodes: 2, control_plane_only: false }.real_nodes(), 2);
    }
}
