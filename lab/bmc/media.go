package bmc

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
)

// drives returns the Redfish ids of the virtual drives, which every system has.
func drives() []string { return []string{"Cd", "UsbStick"} }

// maxMedium limits the size of a downloaded image, in bytes.
const maxMedium = 8 << 30

// Insert downloads an image into a drive. The machine sees it after its next start.
func (s *System) Insert(ctx context.Context, drive, url string) error {
	file := filepath.Join(s.Dir, drive+".img")
	size, err := s.download(ctx, url, file)
	if err != nil {
		return fmt.Errorf("insert %s: %w", url, err)
	}
	s.Log.Info("medium inserted", "node", s.Name, "drive", drive, "url", url, "bytes", size)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.media[drive] = medium{url, file}
	return nil
}

func (s *System) download(ctx context.Context, url, file string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("got status %d, want 200", resp.StatusCode)
	}
	// A running machine can have the old medium open, so the new one is written to another file.
	partial := file + ".new"
	f, err := os.Create(partial)
	if err != nil {
		return 0, err
	}
	size, err := io.Copy(f, io.LimitReader(resp.Body, maxMedium))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return 0, err
	}
	return size, os.Rename(partial, file)
}

// Eject removes the medium from a drive.
func (s *System) Eject(drive string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.media, drive)
	s.Log.Info("medium ejected", "node", s.Name, "drive", drive)
}

func (s *System) medium(drive string) medium {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.media[drive]
}
