package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/distribution/distribution/v3"
	"github.com/distribution/distribution/v3/registry/storage"
	"github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	_ "github.com/distribution/distribution/v3/manifest/ocischema" // teaches it OCI manifests
)

// Manifests are documents; anything longer is a layer.
const longestDocument = 4 << 20

// loadArchive stores every image of an OCI archive under its own name and returns the names.
func loadArchive(ctx context.Context, directory, archive string) ([]string, error) {
	documents, err := readDocuments(archive)
	if err != nil {
		return nil, err
	}
	var index v1.Index
	if err := json.Unmarshal(documents["index.json"], &index); err != nil {
		return nil, fmt.Errorf("no OCI archive (index.json): %w", err)
	}
	driver := filesystem.New(filesystem.DriverParameters{RootDirectory: directory, MaxThreads: 100})
	store, err := storage.NewRegistry(ctx, driver)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, image := range index.Manifests {
		name := image.Annotations["io.containerd.image.name"]
		if err := loadImage(ctx, store, archive, name, documents[blobPath(image.Digest)]); err != nil {
			return nil, fmt.Errorf("image %q: %w", name, err)
		}
		names = append(names, name)
	}
	return names, nil
}

func loadImage(ctx context.Context, store distribution.Namespace, archive, name string, document []byte) error {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return err
	}
	tagged, ok := reference.TagNameOnly(named).(reference.Tagged)
	if !ok {
		return errors.New("it has no tag")
	}
	// Clients of a mirror name the host of an image beside the path, not in it.
	local, err := reference.WithName(reference.Path(named))
	if err != nil {
		return err
	}
	repository, err := store.Repository(ctx, local)
	if err != nil {
		return err
	}
	manifest, described, err := distribution.UnmarshalManifest(v1.MediaTypeImageManifest, document)
	if err != nil {
		return err
	}
	wanted := map[string]v1.Descriptor{}
	for _, part := range manifest.References() {
		wanted[blobPath(part.Digest)] = part
	}
	err = walk(archive, func(header *tar.Header, content io.Reader) error {
		part, ok := wanted[header.Name]
		if !ok {
			return nil
		}
		return storeBlob(ctx, repository.Blobs(ctx), part, content)
	})
	if err != nil {
		return err
	}
	manifests, err := repository.Manifests(ctx)
	if err != nil {
		return err
	}
	if _, err := manifests.Put(ctx, manifest); err != nil {
		return err
	}
	return repository.Tags(ctx).Tag(ctx, tagged.Tag(), described)
}

func storeBlob(ctx context.Context, blobs distribution.BlobStore, part v1.Descriptor, content io.Reader) error {
	writer, err := blobs.Create(ctx)
	if err != nil {
		return err
	}
	defer writer.Close()
	if _, err := writer.ReadFrom(content); err != nil {
		return err
	}
	_, err = writer.Commit(ctx, v1.Descriptor{Digest: part.Digest, Size: part.Size})
	return err
}

// readDocuments returns the short files of an archive by their paths.
func readDocuments(archive string) (map[string][]byte, error) {
	documents := map[string][]byte{}
	return documents, walk(archive, func(header *tar.Header, content io.Reader) error {
		if header.Size > longestDocument {
			return nil
		}
		document, err := io.ReadAll(content)
		documents[path.Clean(header.Name)] = document
		return err
	})
}

func walk(archive string, visit func(*tar.Header, io.Reader) error) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	reader := tar.NewReader(file)
	for {
		header, err := reader.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		header.Name = path.Clean(header.Name)
		if err := visit(header, reader); err != nil {
			return err
		}
	}
}

func blobPath(of digest.Digest) string {
	return path.Join("blobs", of.Algorithm().String(), of.Encoded())
}
