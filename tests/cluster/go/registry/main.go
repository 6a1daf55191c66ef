// The lab's image registry: CNCF distribution on a directory, and a command that puts OCI archives into it.
//
//	registry serve CONFIG
//	registry load DIRECTORY ARCHIVE...
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
	"github.com/spf13/cobra"
)

func main() {
	load := &cobra.Command{
		Use:   "load DIRECTORY ARCHIVE...",
		Short: "puts OCI archives into the registry's directory, whether or not it is being served",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(command *cobra.Command, arguments []string) error {
			for _, archive := range arguments[1:] {
				names, err := loadArchive(context.Background(), arguments[0], archive)
				if err != nil {
					return fmt.Errorf("%s: %w", archive, err)
				}
				for _, name := range names {
					fmt.Println(name)
				}
			}
			return nil
		},
	}
	load.SilenceUsage = true
	registry.RootCmd.AddCommand(load)
	if registry.RootCmd.Execute() != nil {
		os.Exit(1)
	}
}
