mod cluster;
mod hostile;
mod kinds;
mod limits;
mod standalone;
mod virtual_machine;
