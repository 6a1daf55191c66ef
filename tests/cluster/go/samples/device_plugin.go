package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	deviceResource = group + "/directory"
	deviceSocket   = "samples.sock"
	// At this path on the node too: kubelet mounts from there.
	deviceRoot = "/run/corten-samples"
	// Where a container finds its device.
	deviceMount = "/device"
	// Whose the directories are: the user of VM processes.
	deviceOwner = 107
	deviceCount = 2
	// kubelet answers at once, but it may be starting.
	registerLimit = time.Minute
)

// directories offers devices that are nothing but a directory each.
type directories struct {
	plugin.UnimplementedDevicePluginServer
	ended <-chan struct{}
}

// serveDevices is a device plugin until something fails.
func serveDevices() error {
	socket := filepath.Join(plugin.DevicePluginPath, deviceSocket)
	// One that was killed left it.
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	server := grpc.NewServer()
	plugin.RegisterDevicePluginServer(server, &directories{ended: ended})
	served := make(chan error, 1)
	go func() {
		defer close(ended)
		served <- server.Serve(listener)
	}()
	if err := register(); err != nil {
		return fmt.Errorf("kubelet does not take the plugin: %w", err)
	}
	return <-served
}

func register() error {
	connection, err := grpc.NewClient("unix://"+plugin.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	deadline, cancel := context.WithTimeout(context.Background(), registerLimit)
	defer cancel()
	_, err = plugin.NewRegistrationClient(connection).Register(deadline, &plugin.RegisterRequest{
		Version: plugin.Version, Endpoint: deviceSocket, ResourceName: deviceResource,
	}, grpc.WaitForReady(true))
	return err
}

func (*directories) GetDevicePluginOptions(context.Context, *plugin.Empty) (*plugin.DevicePluginOptions, error) {
	return &plugin.DevicePluginOptions{}, nil
}

// ListAndWatch tells of the devices once: they never change. kubelet takes the end of the stream for the plugin's.
func (offered *directories) ListAndWatch(_ *plugin.Empty, stream grpc.ServerStreamingServer[plugin.ListAndWatchResponse]) error {
	var devices []*plugin.Device
	for number := range deviceCount {
		devices = append(devices, &plugin.Device{ID: fmt.Sprint("directory-", number), Health: plugin.Healthy})
	}
	if err := stream.Send(&plugin.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	select {
	case <-stream.Context().Done():
	case <-offered.ended:
	}
	return nil
}

// Allocate empties the directory of each device, for nothing may pass from one Pod to the next, and mounts it.
func (*directories) Allocate(_ context.Context, request *plugin.AllocateRequest) (*plugin.AllocateResponse, error) {
	response := &plugin.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		if len(container.DevicesIds) != 1 {
			return nil, fmt.Errorf("a container can have one %s, not %d", deviceResource, len(container.DevicesIds))
		}
		device := container.DevicesIds[0]
		directory := filepath.Join(deviceRoot, device)
		if err := renew(directory); err != nil {
			return nil, err
		}
		response.ContainerResponses = append(response.ContainerResponses, &plugin.ContainerAllocateResponse{
			Envs:   map[string]string{"DEVICE": device},
			Mounts: []*plugin.Mount{{ContainerPath: deviceMount, HostPath: directory}},
		})
	}
	return response, nil
}

func renew(directory string) error {
	if err := os.RemoveAll(directory); err != nil {
		return err
	}
	if err := os.Mkdir(directory, 0o700); err != nil {
		return err
	}
	return os.Chown(directory, deviceOwner, deviceOwner)
}
