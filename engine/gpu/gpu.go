package gpu

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// Device is one GPU of the machine.
type Device struct {
	Index  int    `msgpack:"index"` // as CUDA_VISIBLE_DEVICES counts with CUDA_DEVICE_ORDER=PCI_BUS_ID
	UUID   string `msgpack:"uuid"`
	Name   string `msgpack:"name"`
	Memory uint64 `msgpack:"memory"` // bytes
}

// probeTimeout bounds a driver that hangs. Waking a GPU without persistence mode takes a second or two each.
const probeTimeout = 30 * time.Second

// Machine is what Find looks at.
type Machine struct {
	Root    string  // of /dev and /proc; "" for the machine's own
	Probe   string  // path of raygo-gpus; "": the kernel driver's list is all there is
	Library string  // RAYGO_NVML_LIBRARY: look even if nothing else speaks of a driver
	Visible *string // CUDA_VISIBLE_DEVICES; nil: not set
}

// Find lists the GPUs that CUDA_VISIBLE_DEVICES leaves visible, in its order. The error says why there are no names; the list holds all
// the same.
func Find(m Machine) ([]Device, error) {
	driver, _ := filepath.Glob(filepath.Join(m.Root, "/proc/driver/nvidia/gpus/*"))
	if len(driver) == 0 && m.Library == "" && !exists(m.Root, "/dev/nvidiactl") && !exists(m.Root, "/dev/dxg") {
		return nil, nil
	}
	if m.Visible != nil && hidesAll(*m.Visible) {
		return nil, nil
	}
	devices := make([]Device, len(driver))
	for i := range devices {
		devices[i].Index = i
	}
	var err error
	if m.Probe != "" {
		var found []Device
		if found, err = ask(m); err == nil {
			devices = found
		}
	}
	if m.Visible != nil {
		devices = among(devices, *m.Visible)
	}
	return devices, err
}

func exists(root, path string) bool {
	_, err := os.Stat(filepath.Join(root, path))
	return err == nil
}

func ask(m Machine) ([]Device, error) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.Probe)
	cmd.Env = append(os.Environ(), "RAYGO_NVML_LIBRARY="+m.Library)
	cmd.WaitDelay = time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("NVIDIA's management library did not answer within %v; nvidia-smi should show what is wrong with the driver", probeTimeout)
	case err != nil && said.Len() > 0:
		return nil, fmt.Errorf("%s", bytes.TrimSpace(said.Bytes()))
	case err != nil:
		return nil, fmt.Errorf("%s: %w", m.Probe, err)
	}
	var found []Device
	if err := msgpack.Unmarshal(out, &found); err != nil {
		return nil, fmt.Errorf("%s wrote no list of GPUs: %w", m.Probe, err)
	}
	return found, nil
}

func hidesAll(visible string) bool {
	return visible == "" || visible == "NoDevFiles" || strings.HasPrefix(visible, "-")
}

// among keeps what the variable names, by number, by UUID or by an UUID's beginning. What follows an unknown name is hidden, as in CUDA.
// A MIG device, "MIG-…", cannot be told from here and is believed.
func among(devices []Device, visible string) []Device {
	var out []Device
	for _, name := range strings.Split(visible, ",") {
		name = strings.TrimSpace(name)
		if strings.HasPrefix(name, "MIG-") {
			out = append(out, Device{Index: -1, UUID: name})
			continue
		}
		number, err := strconv.Atoi(name)
		i := slices.IndexFunc(devices, func(d Device) bool {
			return err == nil && d.Index == number || err != nil && name != "" && d.UUID != "" && strings.HasPrefix(d.UUID, name)
		})
		if i < 0 {
			return out
		}
		out = append(out, devices[i])
	}
	return out
}

// IDs is what CUDA_VISIBLE_DEVICES must hold for each of the devices: what the user's own variable calls it, else its number.
func IDs(devices []Device, visible *string) []string {
	ids := make([]string, len(devices))
	for i, d := range devices {
		ids[i] = strconv.Itoa(d.Index)
	}
	if visible != nil {
		for i, name := range strings.Split(*visible, ",") {
			if i < len(ids) {
				ids[i] = strings.TrimSpace(name)
			}
		}
	}
	return ids
}

// AcceleratorType is the name that the option accelerator_type uses for a product: the model, without maker, memory and form. It is "" for
// a name without a model.
func AcceleratorType(product string) string {
	words := strings.Fields(product)
	if len(words) < 2 {
		return ""
	}
	var model []string
	for _, word := range words[1:] { // the first is the maker or, once, "Tesla"
		numbered := strings.ContainsAny(word, "0123456789")
		if numbered {
			word, _, _ = strings.Cut(word, "-") // "A100-SXM4-40GB"
		}
		model = append(model, word)
		if numbered {
			return strings.Join(model, "-")
		}
	}
	return ""
}
