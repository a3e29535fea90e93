package debian
