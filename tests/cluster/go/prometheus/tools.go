//go:build tools

// Package tools names the programs that are built from this module.
package tools

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
)
