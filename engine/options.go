package engine

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/schedule"

	"github.com/vmihailenco/msgpack/v5"
)

// Options say what a node is. They come as a msgpack map with the names below; what is absent or nil has its default.
type Options struct {
	Version           string             `msgpack:"version"`                   // of who starts the engine; another one is refused
	NumCPUs           *float64           `msgpack:"num_cpus"`                  // nil: those of the machine
	NumGPUs           *float64           `msgpack:"num_gpus"`                  // nil: those that are found
	GPUIDs            []string           `msgpack:"gpu_ids"`                   // what to put into CUDA_VISIBLE_DEVICES for each; nil: 0, 1, …
	Resources         map[string]float64 `msgpack:"resources"`                 // more, by name
	Labels            map[string]string  `msgpack:"labels"`                    // of the node
	Memory            int64              `msgpack:"memory"`                    // bytes tasks may ask for; 0: 70 % of the machine's
	ObjectStoreMemory int64              `msgpack:"object_store_memory"`       // bytes; 0: 30 % of the machine's
	SpillDirs         []string           `msgpack:"spill_dirs"`                // nil: one in the session's folder
	SpillThreshold    *float64           `msgpack:"object_spilling_threshold"` // part of the store from which on idle objects are copied to disk; nil: 0.8
	TempDir           string             `msgpack:"temp_dir"`                  // where session folders are made
	SessionName       string             `msgpack:"session_name"`
	Executable        string             `msgpack:"executable"` // of workers: a Python with raygo
	Env               map[string]string  `msgpack:"env"`        // of workers, on top of ours
	NodeIP            string             `msgpack:"node_ip"`
	Listen            bool               `msgpack:"listen"`               // accept other programs at the session's socket
	InfeasibleTimeout *float64           `msgpack:"infeasible_timeout_s"` // nil: 10; negative: wait for ever
	WorkerIdle        float64            `msgpack:"worker_idle_s"`        // 0: 60
	Prestart          *int               `msgpack:"prestart"`             // workers started with a job; nil or -1: as many as CPUs

	// RegisterFD is told of every descriptor that a forked child must close.
	RegisterFD func(fd int, on bool) `msgpack:"-"`
	// Launch starts a template process; nil: engine/worker's.
	Launch Launcher `msgpack:"-"`
}

// ParseOptions reads the map that raygo_engine_start gets.
func ParseOptions(raw []byte) (Options, error) {
	var o Options
	if err := msgpack.Unmarshal(raw, &o); err != nil {
		return o, errs.New(errs.EINVAL, "the engine's options are not the map they should be: %w", err)
	}
	return o, nil
}

func (o *Options) infeasibleTimeout() time.Duration {
	if o.InfeasibleTimeout == nil {
		return 10 * time.Second
	}
	return time.Duration(*o.InfeasibleTimeout * float64(time.Second))
}

func (o *Options) spillAt() float64 {
	if o.SpillThreshold == nil {
		return 0.8
	}
	return max(*o.SpillThreshold, 1e-9) // 0 is the store's own default
}

func (o *Options) workerIdle() time.Duration {
	if o.WorkerIdle <= 0 {
		return time.Minute
	}
	return time.Duration(o.WorkerIdle * float64(time.Second))
}

// complete fills in what depends on the machine and says what the node has.
func (o *Options) complete() (schedule.Resources, error) {
	total := memTotal()
	if o.ObjectStoreMemory == 0 {
		o.ObjectStoreMemory = max(total*3/10, 64<<20)
	}
	if o.ObjectStoreMemory < 1<<20 {
		return nil, errs.New(errs.EINVAL, "object_store_memory is %d bytes; the least is 1 MiB", o.ObjectStoreMemory)
	}
	if t := o.SpillThreshold; t != nil && !(*t >= 0 && *t <= 1) {
		return nil, errs.New(errs.EINVAL, "object_spilling_threshold is %v; it is a part of the object store, from 0 to 1", *t)
	}
	if o.Memory == 0 {
		o.Memory = total * 7 / 10
	}
	if o.NodeIP == "" {
		o.NodeIP = "127.0.0.1"
	}
	r := schedule.Resources{
		schedule.CPU:             schedule.Amount(runtime.NumCPU()) * schedule.One,
		"memory":                 schedule.FromFloat(float64(o.Memory)),
		"object_store_memory":    schedule.FromFloat(float64(o.ObjectStoreMemory)),
		"node:" + o.NodeIP:       schedule.One,
		"node:__internal_head__": schedule.One,
	}
	if o.NumCPUs != nil {
		r[schedule.CPU] = schedule.FromFloat(*o.NumCPUs)
	}
	gpus := 0.0
	if o.NumGPUs != nil {
		gpus = *o.NumGPUs
	} else {
		found := findGPUs()
		if o.GPUIDs == nil {
			o.GPUIDs = found
		}
		gpus = float64(len(found))
	}
	if gpus != 0 {
		r[schedule.GPU] = schedule.FromFloat(gpus)
	}
	for len(o.GPUIDs) < int(gpus+0.9999) {
		o.GPUIDs = append(o.GPUIDs, strconv.Itoa(len(o.GPUIDs)))
	}
	for name, f := range o.Resources {
		if _, taken := r[name]; taken || name == schedule.GPU {
			return nil, errs.New(errs.EINVAL, "resources names %q, which has an option of its own", name)
		}
		r[name] = schedule.FromFloat(f)
	}
	for name, a := range r {
		if a < 0 {
			return nil, errs.New(errs.EINVAL, "the node is to have %v %s; an amount cannot be negative", a, name)
		}
	}
	return r, nil
}

// memTotal is the machine's memory in bytes, or the control group's limit when that is lower.
func memTotal() int64 {
	total := int64(4 << 30)
	if f, err := os.Open("/proc/meminfo"); err == nil {
		defer f.Close()
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			var kb int64
			if n, _ := fmt.Sscanf(lines.Text(), "MemTotal: %d kB", &kb); n == 1 {
				total = kb << 10
				break
			}
		}
	}
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if b, err := os.ReadFile(path); err == nil {
			if limit, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && limit > 0 {
				total = min(total, limit)
			}
		}
	}
	return total
}

// findGPUs lists the ids of the GPUs this process may use.
func findGPUs() []string {
	devices, err := filepath.Glob("/proc/driver/nvidia/gpus/*")
	if err != nil || len(devices) == 0 {
		return nil
	}
	if visible, set := os.LookupEnv("CUDA_VISIBLE_DEVICES"); set {
		if visible == "" || visible == "NoDevFiles" || visible == "-1" {
			return nil
		}
		return strings.Split(visible, ",")
	}
	ids := make([]string, len(devices))
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	return ids
}
