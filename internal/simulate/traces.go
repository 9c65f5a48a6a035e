package simulate

import (
	"fmt"
	"io"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// GPUMilli is the resource of a thousandth of a GPU. The traces share GPUs in such parts.
const GPUMilli = "gpu-milli"

// gpuModel is the label that has the model of a node's GPUs. It is no trait: a node with a trait
// takes only tasks that ask for it, and most pods of openb take any model.
const gpuModel = "gpu"

// ReadOpenBNodes reads openb_node_list_all_node.csv of Alibaba's trace cluster-trace-gpu-v2023.
func ReadOpenBNodes(name string, r io.Reader) ([]Node, error) {
	t, err := readTable(name, r, "sn", "cpu_milli", "memory_mib", "gpu", "model")
	if err != nil {
		return nil, err
	}
	var nodes []Node
	for t.next() {
		n := Node{ID: t.text("sn"), Capacity: plimsoll.Resources{
			plimsoll.CPU: int64(t.number("cpu_milli", 0)), plimsoll.Memory: int64(t.number("memory_mib", 0)) << 20,
		}}
		if gpus := int64(t.number("gpu", 0)); gpus > 0 {
			n.Capacity[GPUMilli] = 1000 * gpus
		}
		if model := t.text("model"); model != "" {
			n.Attributes = map[string]string{gpuModel: model}
		}
		nodes = append(nodes, n)
	}
	return nodes, t.err
}

// ReadPods reads the jobs of a trace: openb_pod_list_*.csv of cluster-trace-gpu-v2023, or the file
// of cluster-trace-gpu-v2025 (DLRM). Each pod is a job of one task.
func ReadPods(name string, r io.Reader) (*Workload, error) {
	t, err := readTable(name, r, "creation_time", "scheduled_time", "deletion_time")
	if err != nil {
		return nil, err
	}
	w := &Workload{Name: name}
	read, needed := (*table).dlrm, []string{
		"instance_sn", "role", "app_name", "cpu_request", "gpu_request", "rdma_request", "memory_request",
		"disk_request", "max_instance_per_node",
	}
	if _, ok := t.columns["gpu_milli"]; ok {
		read = (*table).openb
		needed = []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_spec", "qos", "pod_phase"}
	}
	if err := t.need(needed...); err != nil {
		return nil, err
	}
	for t.next() {
		if a, ok := read(t); ok {
			w.Arrivals = append(w.Arrivals, a)
		}
	}
	if t.err != nil {
		return nil, t.err
	}
	w.sort()
	w.Notes = append(w.Notes, "a GPU is 1,000 "+GPUMilli+": parts of one task may lie on several GPUs of a node")
	if t.bounded > 0 {
		w.Notes = append(w.Notes, fmt.Sprintf("instances with a max_instance_per_node above 1: %d; they have no bound in "+
			"the simulation, which knows only that of 1", t.bounded))
	}
	return w, nil
}

// openb reads a pod of openb. Its queue is the one named after its quality of service.
func (t *table) openb() (Arrival, bool) {
	created := t.number("creation_time", 0)
	began := t.number("scheduled_time", created)
	a := Arrival{
		At: seconds(created), Job: t.text("name"), Owner: strings.ToLower(t.text("qos")),
		Queue: strings.ToLower(t.text("qos")), Tags: map[string]string{"qos": t.text("qos")},
	}
	g := TaskGroup{Resources: plimsoll.Resources{
		plimsoll.CPU: int64(t.number("cpu_milli", 0)), plimsoll.Memory: int64(t.number("memory_mib", 0)) << 20,
	}}
	if gpu := int64(t.number("num_gpu", 0) * t.number("gpu_milli", 0)); gpu > 0 {
		g.Resources[GPUMilli] = gpu
	}
	if models := t.text("gpu_spec"); models != "" {
		var possible []string
		for model := range strings.SplitSeq(models, "|") {
			possible = append(possible, fmt.Sprintf("node.labels.%s == %q", gpuModel, model))
		}
		g.Constraints.Where = strings.Join(possible, " || ")
	}
	result := plimsoll.ResultSucceeded
	if t.text("pod_phase") == "Failed" {
		result = plimsoll.ResultFailed
	}
	g.Tasks = []Task{{{Runtime: max(seconds(t.number("deletion_time", 0)-began), second), Result: result}}}
	a.Groups = []TaskGroup{g}
	return a, true
}

// dlrm reads an instance of the DLRM trace. Its queue is the one named after its role, and its
// owner the service. Of max_instance_per_node only 1 becomes a constraint: a job can ask that no
// other of its service is on the node, but not that few are.
func (t *table) dlrm() (Arrival, bool) {
	const end = 2_678_400 // seconds of the trace
	created := t.number("creation_time", 0)
	began := t.number("scheduled_time", created)
	deleted := t.number("deletion_time", 0)
	a := Arrival{
		At: seconds(created), Job: strings.ReplaceAll(t.text("instance_sn"), "_", "-"), Owner: t.text("app_name"),
		Queue: strings.ToLower(t.text("role")),
		Tags:  map[string]string{"app": t.text("app_name"), "role": t.text("role")},
	}
	g := TaskGroup{Resources: plimsoll.Resources{
		plimsoll.CPU:    int64(1000 * t.number("cpu_request", 0)),
		plimsoll.Memory: int64(t.number("memory_request", 0) * (1 << 30)),
		plimsoll.Disk:   int64(t.number("disk_request", 0) * (1 << 30)),
		"rdma":          int64(t.number("rdma_request", 0)),
	}}
	if gpu := int64(1000 * t.number("gpu_request", 0)); gpu > 0 {
		g.Resources[GPUMilli] = gpu
	}
	switch most := int(t.number("max_instance_per_node", -1)); {
	case most > 1:
		t.bounded++
	case most == 1:
		a.Labels = map[string]string{"app": t.text("app_name")}
		g.Constraints.Far = []plimsoll.Selector{{Label: "app=" + t.text("app_name")}}
	}
	runtime := int64(0)
	if deleted > 0 && deleted < end {
		runtime = max(seconds(deleted-began), second)
	}
	g.Tasks = []Task{{{Runtime: runtime, Result: plimsoll.ResultSucceeded}}}
	a.Groups = []TaskGroup{g}
	return a, true
}
