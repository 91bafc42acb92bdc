package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
)

// serve answers requests, one per connection, until the listener fails.
func serve(ctx context.Context, listener net.Listener, list services) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "accept a control connection: %v\n", err)
			continue
		}
		go answer(ctx, conn, list)
	}
}

// answer performs one request. If the client disconnects, the wait ends but the operation continues.
func answer(ctx context.Context, conn net.Conn, list services) {
	defer conn.Close() //nolint:errcheck // the reply was sent or the client is gone
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var request machine.Request
	if err := json.NewDecoder(conn).Decode(&request); err != nil {
		fmt.Fprintf(os.Stderr, "read a control request: %v\n", err)
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, conn) // returns when the client disconnects
		cancel()
	}()
	reply := machine.Reply{}
	if err := perform(ctx, request, list); err != nil {
		reply.Error = err.Error()
	}
	reply.Services = list.status()
	if err := json.NewEncoder(conn).Encode(reply); err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "answer a control request: %v\n", err)
	}
}

func perform(ctx context.Context, request machine.Request, list services) error {
	switch request.Operation {
	case machine.OpStatus:
		return nil
	case machine.OpWait:
		for _, s := range list {
			s.await(ctx, s.isSettled)
		}
		return ctx.Err()
	case machine.OpStart, machine.OpStop, machine.OpKill:
		s, err := list.named(request.Service)
		if err != nil {
			return err
		}
		return s.perform(ctx, request.Operation)
	default:
		return fmt.Errorf("unknown operation %q", request.Operation)
	}
}

func (s *service) perform(ctx context.Context, op machine.Operation) error {
	switch op {
	case machine.OpStart:
		s.start()
		s.await(ctx, s.isReady)
		return ctx.Err()
	case machine.OpStop:
		s.stop(ctx)
		return ctx.Err()
	case machine.OpKill:
		return s.kill(ctx)
	case machine.OpStatus, machine.OpWait:
	}
	return fmt.Errorf("%q is not for one service", op)
}
