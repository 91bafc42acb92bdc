package mps

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// The test's own program has four roles, selected by roleVariable: the tests, a supervisor, the driver's
// nvidia-cuda-mps-control (with -f the daemon, else its command line), and a server of it.
const (
	roleVariable   = "TESSERA_TEST_ROLE"
	folderVariable = "TESSERA_TEST_FOLDER"
	// stageVariable is the folder through which the tests control the fake program.
	stageVariable = "TESSERA_TEST_STAGE"
	// testdataVariable is the folder with what NVIDIA's programs print.
	testdataVariable = "TESSERA_TEST_DATA"
	// quitVariable is how long a daemon may take to end, by default as long as everything else.
	quitVariable = "TESSERA_TEST_QUIT"
)

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleVariable) {
	case "supervisor":
		err = superviseStage(os.Getenv(folderVariable), os.Getenv(stageVariable))
	case "control":
		err = standIn(os.Getenv(stageVariable))
	case "server":
		select {}
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// superviseStage is the main function of a supervisor whose driver is the fake program.
func superviseStage(folder, stage string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s := NewSupervisor(SupervisorConfig{Folder: folder, Pod: "pod-1", SharedMemory: filepath.Join(stage, "shm"), Program: func() (Program, error) {
		path := filepath.Join(stage, "nvidia-cuda-mps-control")
		if _, err := os.Stat(path); err != nil {
			return Program{}, err
		}
		p := Program{Path: path, Libraries: []Library{{Name: "libcuda.so.1", Target: "/driver/libcuda.so.1"}}}
		if driver, err := os.Readlink(path); err == nil { // the fake driver's program, not the fake program
			p = Program{Path: driver}
			libraries, err := filepath.Glob(filepath.Join(filepath.Dir(driver), "../lib/*/*.so*"))
			if err != nil {
				return Program{}, err
			}
			for _, l := range libraries {
				p.Libraries = append(p.Libraries, Library{Name: filepath.Base(l), Target: l})
			}
		}
		return p, nil
	}})
	s.evictDelay, s.timeouts = 300*time.Millisecond, longTimeouts()
	if text := os.Getenv(quitVariable); text != "" {
		limit, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		s.timeouts.quit = limit
	}
	return s.Run(ctx)
}

// longTimeouts has timeouts for a daemon on a busy machine, which may delay the start of a program for long: a command that
// times out is a failure of the daemon, which none of these tests is about.
func longTimeouts() timeouts {
	return timeouts{start: harness.Patience, command: harness.Patience, quit: harness.Patience}
}

// release returns the driver whose program is played: 580, or that in the stage's file.
func release(stage string) string {
	text, err := os.ReadFile(filepath.Join(stage, "release"))
	if err != nil {
		return "580"
	}
	return string(text)
}

// standIn implements nvidia-cuda-mps-control as its manual describes it, and strictly: an unknown line is an error.
func standIn(stage string) error {
	socket := filepath.Join(os.Getenv("CUDA_MPS_PIPE_DIRECTORY"), "control")
	switch arguments := strings.Join(os.Args[1:], " "); {
	case arguments == "-h":
		help, err := os.ReadFile(filepath.Join(os.Getenv(testdataVariable), "help-"+release(stage)+".txt"))
		fmt.Print(string(help))
		return err
	case arguments == "", arguments != "-f" && release(stage) != "580": // options that are not known are ignored, with -f
		return queryDaemon(socket)
	}
	if text, err := os.ReadFile(filepath.Join(stage, "refuse")); err == nil {
		return fmt.Errorf("%s", text)
	}
	runtime.LockOSThread() // servers end with the thread that started them
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	c := &character{stage: stage, limits: map[string]string{}}
	c.write("daemon", strconv.Itoa(os.Getpid())+" "+strings.Join(os.Args[1:], " "))
	c.write("environment", strings.Join(os.Environ(), "\n"))
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		line, err := bufio.NewReader(connection).ReadString('\n')
		if err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(stage, "mute")); err == nil {
			defer connection.Close()
			continue
		}
		answer, err := c.respond(strings.Fields(line))
		if err != nil {
			answer = "error " + err.Error()
		}
		fmt.Fprint(connection, answer)
		connection.Close()
		if c.over {
			return nil
		}
	}
}

// queryDaemon passes the standard input to the daemon.
func queryDaemon(socket string) error {
	connection, err := net.Dial("unix", socket)
	if err != nil {
		return fmt.Errorf("Cannot find MPS control daemon process") //nolint:revive,staticcheck // the program's own words
	}
	if _, err := io.Copy(connection, os.Stdin); err != nil {
		return err
	}
	answer, err := io.ReadAll(connection)
	if err != nil {
		return err
	}
	if refusal, ok := strings.CutPrefix(string(answer), "error "); ok {
		return fmt.Errorf("%s", refusal)
	}
	fmt.Print(string(answer))
	return nil
}

// character is a daemon of the fake program.
type character struct {
	stage   string
	servers []*exec.Cmd
	// limits are those in effect: of each server by its PID, of later servers by "default".
	limits map[string]string
	over   bool
}

func (c *character) write(name, text string) {
	if err := os.WriteFile(filepath.Join(c.stage, name), []byte(text), 0o600); err != nil {
		panic(err)
	}
}

func (c *character) respond(words []string) (string, error) {
	log, err := os.OpenFile(filepath.Join(c.stage, "commands"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer log.Close()
	verb, arguments := words[0], words[1:]
	if !strings.HasPrefix(verb, "get_") && verb != "connect" && verb != "start_server" {
		fmt.Fprintln(log, strings.Join(words, " "))
	}
	if denied, err := os.ReadFile(filepath.Join(c.stage, "deny")); err == nil && verb == string(denied) {
		return "", fmt.Errorf("%s: denied", verb)
	}
	switch {
	case verb == "get_server_list" && len(arguments) == 0:
		var pids []string
		for _, s := range c.servers {
			pids = append(pids, strconv.Itoa(s.Process.Pid)+"\n")
		}
		return strings.Join(pids, ""), nil
	case verb == "get_server_status" && release(c.stage) == "535":
		return `Unknown command "get_server_status"`, nil
	case verb == "get_server_status" && len(arguments) == 1:
		return "ACTIVE\n", nil
	case verb == "connect", verb == "start_server" && slices.Equal(arguments, []string{"-uid", "0"}):
		server := exec.Command(os.Args[0])
		if verb != "connect" { // not a command: a client connects, for which a server starts that outlives the daemon
			server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		}
		server.Env = append(os.Environ(), roleVariable+"=server")
		if err := server.Start(); err != nil {
			return "", err
		}
		c.servers = append(c.servers, server)
		return strconv.Itoa(server.Process.Pid), nil
	case verb == "quit":
		if _, err := os.Stat(filepath.Join(c.stage, "stubborn")); err == nil {
			return "", nil
		}
		c.over = true
		return "", nil
	}
	if folder, err := os.Stat(os.Getenv("CUDA_MPS_PIPE_DIRECTORY")); len(c.servers) == 0 && (err != nil || folder.Mode().Perm()&0o077 != 0) {
		return "", fmt.Errorf("clients of other users can connect before the daemon has its limits: %v, %w", folder.Mode(), err)
	}
	action, what, _ := strings.Cut(verb, "_")
	if !strings.HasPrefix(what, "default_") && !slices.ContainsFunc(c.servers, func(s *exec.Cmd) bool { return len(arguments) > 0 && strconv.Itoa(s.Process.Pid) == arguments[0] }) {
		return "", fmt.Errorf("no server for %s", strings.Join(words, " "))
	}
	switch action {
	case "get":
		return shown(c.limits[strings.Join(append([]string{what}, arguments...), " ")]), nil
	case "set":
		if ignored, err := os.ReadFile(filepath.Join(c.stage, "ignore")); err != nil || verb != string(ignored) {
			value := len(arguments) - 1
			c.limits[strings.Join(append([]string{what}, arguments[:value]...), " ")] = arguments[value]
		}
		return "", nil
	}
	return "", fmt.Errorf("unknown command: %s", strings.Join(words, " "))
}

// shown returns a limit as the daemon shows it.
func shown(limit string) string {
	mib, isMemory := strings.CutSuffix(limit, "M")
	switch number, err := strconv.Atoi(mib); {
	case err != nil:
		return ""
	case !isMemory:
		return limit + ".0\n"
	case number >= 1024:
		return fmt.Sprintf("%dG\n", number/1024)
	}
	return limit + "\n"
}
