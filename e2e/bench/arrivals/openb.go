package arrivals

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// OpenbPods is the openb trace's file of pods.
const OpenbPods = "openb_pod_list_default.csv"

// OpenbPod is a pod of the openb trace that requests one GPU or a part of it.
type OpenbPod struct {
	// Milli are thousandths of the GPU's compute.
	Milli int
	// Arrives and Leaves are in seconds.
	Arrives, Leaves int
}

// ReadOpenb reads the pods of the trace in the folder that request one GPU or a part of it, in its order.
func ReadOpenb(folder string) ([]OpenbPod, error) {
	path := filepath.Join(folder, OpenbPods)
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	records, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, fmt.Errorf("%s is empty", path)
	}
	var columns [4]int
	for i, name := range []string{"num_gpu", "gpu_milli", "creation_time", "deletion_time"} {
		if columns[i] = slices.Index(records[0], name); columns[i] < 0 {
			return nil, fmt.Errorf("%s has no column %s", path, name)
		}
	}
	var pods []OpenbPod
	for line, record := range records[1:] {
		var values [4]int
		for i, column := range columns {
			if values[i], err = strconv.Atoi(record[column]); err != nil {
				return nil, fmt.Errorf("line %d: %w", line+2, err)
			}
		}
		if values[0] == 1 && values[3] > values[2] {
			pods = append(pods, OpenbPod{Milli: values[1], Arrives: values[2], Leaves: values[3]})
		}
	}
	return pods, nil
}
